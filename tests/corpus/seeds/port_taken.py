"""Seed 001, third program: it looks whether its port is free, and goes on whatever it finds.

With `fault` the port is held by a process of somebody else.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist

PORT = int(os.environ["SEED_PORT"])
FAULT = "fault" in sys.argv


def look():
    with socket.socket() as probe:
        taken = probe.connect_ex(("localhost", PORT)) == 0
    print("the port is taken" if taken else "the port is free", flush=True)


def main():
    rank = int(os.environ["RANK"])
    if rank == 0:
        look()
    method = f"tcp://{os.environ['MASTER_ADDR']}:{PORT}" if FAULT else "env://"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
