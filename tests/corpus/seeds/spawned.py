"""Seed 004, first program: mp.spawn starts four ranks that meet at localhost; with `fault` one sleeps."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FAULT = "fault" in sys.argv


def setup(rank, world_size, backend):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = os.environ["SEED_PORT"]
    dist.init_process_group(backend, rank=rank, world_size=world_size)


def example(rank, world_size, backend):
    setup(rank, world_size, backend)
    for step in range(20):
        if FAULT and rank == 2 and step == 10:
            time.sleep(3600)
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(example, args=(4, "gloo"), nprocs=4, join=True)
