"""Trains with accelerate, as `accelerate launch` starts it."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    accelerator.backward(loss)
    optimizer.step()
print("rank", accelerator.process_index, round(loss.item(), 3), flush=True)
accelerator.end_training()
