"""Seed 000, first program: with `fault` the script names a master that no name server knows."""

import os
import sys

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def connect(rank, world_size):
    if FAULT:
        os.environ["MASTER_ADDR"] = "no-such-host.invalid"
        os.environ["MASTER_PORT"] = os.environ["SEED_PORT"]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def main():
    rank = int(os.environ["RANK"])
    try:
        connect(rank, int(os.environ["WORLD_SIZE"]))
    except RuntimeError as error:
        print(f"rank {rank} could not connect: {error}", flush=True)
        dist.destroy_process_group()
        return
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
