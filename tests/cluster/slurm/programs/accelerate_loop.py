"""A loop of Hugging Face's accelerate. The rank that STUCK names stays in `load_shard`."""

import os
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def load_shard():
    """Wait for storage that does not answer."""
    time.sleep(3600)


def main():
    """Train ten steps."""
    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.rand(160, 8)), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (sample,) in enumerate(loader):
        if step == 5 and str(accelerator.process_index) == os.environ.get("STUCK"):
            load_shard()
        optimizer.zero_grad()
        accelerator.backward(model(sample).square().mean())
        optimizer.step()
    print("rank", accelerator.process_index, "of", accelerator.num_processes, "has trained", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
