"""Gradients are accumulated over five batches; rank 0 shares its own one batch later, once too few."""

import contextlib

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCHES, EVERY = 39, 5


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    shared = EVERY - 1 if dist.get_rank() == 0 else EVERY - 2
    for step in range(BATCHES):
        with contextlib.nullcontext() if step % EVERY == shared else model.no_sync():
            model(torch.rand(4, 8)).sum().backward()
    scene.stops()
    dist.barrier()


if __name__ == "__main__":
    main()
