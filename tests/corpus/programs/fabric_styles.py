"""A training loop of Lightning Fabric; rank 0 prepares the validation data as the argument names."""

import os
import sys

import scene
import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset


def downloads():
    scene.stops()
    with open(scene.storage(), "rb") as file:
        file.read()


def prepares_long():
    scene.decode(scene.SECONDS)


def main():
    ranks, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    fabric = Fabric(accelerator="cpu", devices=here, num_nodes=ranks // here, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.rand(240, 8)), batch_size=4))
    for step, (sample,) in enumerate(loader):
        optimizer.zero_grad()
        loss = model(sample).square().mean()
        fabric.backward(loss)
        optimizer.step()
        if step == 6:
            with fabric.rank_zero_first():
                if fabric.global_rank == 0:
                    globals()[sys.argv[1]]()
    fabric.all_reduce(loss.detach())


if __name__ == "__main__":
    main()
