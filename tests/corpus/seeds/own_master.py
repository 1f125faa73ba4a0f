"""Seed 000, second program: with `fault` the script sets localhost and a port of its own, under torchrun."""

import os
import sys

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def connect(rank, world_size):
    if FAULT:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = os.environ["SEED_PORT"]
    try:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    except RuntimeError as error:
        print(f"rank {rank} could not connect: {error}", flush=True)
        dist.destroy_process_group()
    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def main():
    device = connect(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
