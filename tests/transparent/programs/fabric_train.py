"""Trains with Lightning Fabric on two processes, which it starts itself."""

import lightning_fabric
import torch

if __name__ == "__main__":
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        fabric.backward(loss)
        optimizer.step()
    print("rank", fabric.global_rank, round(loss.item(), 3), flush=True)
