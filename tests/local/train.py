"""A small training that does as its arguments say: steps of all_reduce, a fault at a rank and a step."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--pause", type=float, default=0.05)
parser.add_argument("--raise-at", type=int, metavar="RANK")
parser.add_argument("--hang-at", type=int, metavar="RANK")
parser.add_argument("--pause-at", type=int, metavar="STEP", help="rank 1 sleeps there for ten seconds")
parser.add_argument("--exit-with", type=int)
arguments = parser.parse_args()


def load_slowly() -> None:
    """Where the hanging rank stands."""
    while True:
        time.sleep(0.1)


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(arguments.steps):
    if step == 2 and rank == arguments.raise_at:
        raise ValueError(f"bad sample in step {step}")
    if step == 2 and rank == arguments.hang_at:
        load_slowly()
    if step == arguments.pause_at and rank == 1:
        time.sleep(10)
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"step {step}: {int(total)} ranks", flush=True)
    time.sleep(arguments.pause)
if arguments.exit_with is not None:
    os._exit(arguments.exit_with)
dist.destroy_process_group()
sys.exit(0)
