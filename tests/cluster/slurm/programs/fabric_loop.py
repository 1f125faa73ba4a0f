"""A loop of Lightning Fabric. The rank that STUCK names stays in `load_shard`."""

import os
import time

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset


def load_shard():
    """Wait for storage that does not answer."""
    time.sleep(3600)


def main():
    """Train ten steps."""
    fabric = Fabric(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.rand(160, 8)), batch_size=4))
    for step, (sample,) in enumerate(loader):
        if step == 5 and str(fabric.global_rank) == os.environ.get("STUCK"):
            load_shard()
        optimizer.zero_grad()
        fabric.backward(model(sample).square().mean())
        optimizer.step()
    environment = type(fabric.strategy.cluster_environment).__name__
    print("rank", fabric.global_rank, "of", fabric.world_size, "has trained by", environment, flush=True)


if __name__ == "__main__":
    main()
