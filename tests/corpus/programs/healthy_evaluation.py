"""Rank 0 evaluates alone between two steps; the others wait for it in DDP's all_reduce."""

import time

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def evaluate(model):
    model.eval()
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        model(torch.rand(64, 8))
    model.train()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for _ in range(2):
        model(torch.rand(4, 8)).sum().backward()
        if dist.get_rank() == 0:
            evaluate(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
