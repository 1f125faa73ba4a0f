"""Seed 004, third program: DDP in spawned ranks; with `fault` by NCCL, where there is no GPU."""

import os
import sys

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
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 1)).backward()
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(example, args=(4, "nccl" if FAULT else "gloo"), nprocs=4, join=True)
