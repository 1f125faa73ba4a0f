"""Seed 001, first program: DDP after a setup function that, with `fault`, sets localhost and a port."""

import os
import sys

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def setup(rank, world_size):
    if FAULT:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = os.environ["SEED_PORT"]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def main():
    setup(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(20, 10)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
