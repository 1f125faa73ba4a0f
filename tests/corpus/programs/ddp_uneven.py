"""DDP with inputs of different lengths: rank 1 has fewer, and does what the argument names about it."""

import sys
import time

import scene
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

WHAT = sys.argv[1]


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, batch, with_head):
        hidden = self.trunk(batch)
        return self.head(hidden) if with_head else hidden


def steps(rank):
    if WHAT == "joins_well":
        return 20 if rank == 1 else 40
    return 12 if rank == 1 and WHAT == "returns" else 400


def train(model, rank):
    for step in range(steps(rank)):
        if rank == 1 and step == 10 and WHAT == "raises_in_join":
            scene.stops()
            raise ValueError("batch 10 is empty")
        skips = rank == 1 and step == 10 and WHAT == "skips_head"
        if skips:
            scene.stops()
        if rank == 0 and step == 30 and WHAT == "joins_well":
            until = time.monotonic() + scene.SECONDS
            while time.monotonic() < until:
                torch.rand(64, 64) @ torch.rand(64, 64)
        model(torch.rand(4, 8), not skips).sum().backward()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Branches())
    if "join" in WHAT:
        with Join([model]):
            train(model, rank)
    else:
        train(model, rank)
    if WHAT == "returns" and rank == 1:
        scene.stops()
        return
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
