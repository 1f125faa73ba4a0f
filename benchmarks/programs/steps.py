"""Small all_reduces, as many as told, timed on rank 0: the step of a job that hardly computes.

Steps come in blocks, and the median block is what counts: a block that shared its core with somebody else's
work is an outlier, not an overhead.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=12.0)
parser.add_argument("--steps", type=int, default=100, help="in a block")
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--begun", type=Path, required=True, help="made when the first block is over")
arguments = parser.parse_args()

# Where the kernel happens to put two ranks on one core, or apart, would decide the figure.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
dist.init_process_group("gloo")
tensor = torch.ones(1024)
over = torch.zeros(1)
blocks = []
begin = time.perf_counter()
while not over:
    over.fill_(float(time.perf_counter() - begin > arguments.seconds))
    dist.broadcast(over, 0)  # rank 0's clock is everybody's
    start = time.perf_counter()
    for _ in range(arguments.steps):
        dist.all_reduce(tensor)
        tensor.fill_(1.0)
    blocks.append((time.perf_counter() - start) / arguments.steps)
    if len(blocks) == 1 and dist.get_rank() == 0:
        arguments.begun.touch()
if dist.get_rank() == 0:
    arguments.out.write_text(f"{statistics.median(blocks[1:])}\n")
dist.destroy_process_group()
