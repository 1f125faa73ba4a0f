"""Seed 001, second program: who cannot connect reports it, gives the others time to do so, and exits with 1.

With `fault` one rank goes to another port than the others.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def main():
    rank = int(os.environ["RANK"])
    if FAULT and rank == 1:
        os.environ["MASTER_PORT"] = os.environ["SEED_PORT"]
    try:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    except RuntimeError as error:
        print(f"rank {rank} could not connect: {error}", flush=True)
        time.sleep(5)
        sys.exit(1)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
