"""A training loop of Hugging Face accelerate; rank 0 does what the argument names after step 6."""

import sys
import time

import scene
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def gathers_alone(accelerator, model, loss):
    """It logs, and `gather` is a collective: all ranks would have to call it."""
    if accelerator.is_main_process:
        scene.stops()
        accelerator.print("mean loss", accelerator.gather(loss.detach()).mean().item())


def evaluates_long(accelerator, model, loss):
    """The others wait at the barrier that accelerate has for this."""
    if accelerator.is_main_process:
        until = time.monotonic() + scene.SECONDS
        alone = accelerator.unwrap_model(model)
        while time.monotonic() < until:
            alone(torch.rand(64, 8))
    accelerator.wait_for_everyone()


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    samples = TensorDataset(torch.rand(240, 8), torch.rand(240, 1))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(samples, batch_size=4))
    for step, (sample, target) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(sample), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if step == 6:
            globals()[sys.argv[1]](accelerator, model, loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
