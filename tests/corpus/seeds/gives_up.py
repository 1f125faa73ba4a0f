"""Seed 000, third program: whoever cannot connect waits a little, says so, and leaves without an error.

With `fault` the master is localhost, given as a URL: right on one machine, wrong on two.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def connect(rank, world_size):
    method = f"tcp://localhost:{os.environ['SEED_PORT']}" if FAULT else "env://"
    print(f"rank {rank} connects", flush=True)
    try:
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world_size)
    except RuntimeError as error:
        print(f"rank {rank} could not connect: {error}", flush=True)
        time.sleep(10)
        return False
    return True


def main():
    if connect(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])):
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
