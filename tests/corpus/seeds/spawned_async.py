"""Seed 004, second program: asynchronous all_reduce and wait; with `fault` one rank calls another."""

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
        time.sleep(0.05)
        if FAULT and rank == 3 and step == 10:
            work = dist.broadcast(torch.ones(1), src=0, async_op=True)
        else:
            work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(example, args=(4, "gloo"), nprocs=4, join=True)
