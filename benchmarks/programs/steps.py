"""Small all_reduces, as many as told, timed on rank 0: the step of a job that hardly computes.

Steps come in blocks, and the median block is what counts: a block that shared its core with somebody else's
work is an outlier, not an overhead.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--blocks", type=int, default=40)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--out", type=Path, required=True)
arguments = parser.parse_args()

dist.init_process_group("gloo")
tensor = torch.ones(1024)
blocks = []
for block in range(arguments.blocks + 1):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(arguments.steps):
        dist.all_reduce(tensor)
        tensor.fill_(1.0)
    if block:
        blocks.append((time.perf_counter() - start) / arguments.steps)
if dist.get_rank() == 0:
    arguments.out.write_text(f"{statistics.median(blocks)}\n")
dist.destroy_process_group()
