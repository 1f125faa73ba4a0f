"""Small all_reduces, every other of them asynchronous, timed on rank 0, until a file says that it is enough:
the step of a job that hardly computes, or that multiplies matrices as well. Steps come in blocks, of which
begin, end and seconds a step are written, by the machine's clock."""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20, help="in a block")
parser.add_argument("--products", type=int, default=0, help="of matrices, in a step")
parser.add_argument("--out", type=Path, required=True, help="and .begun, .end beside it")
arguments = parser.parse_args()

# Where the kernel happens to put two ranks on one core, or apart, would decide the figure.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
torch.set_num_threads(1)
dist.init_process_group("gloo")
matrix = torch.rand(512, 512)
tensor = torch.ones(1024)
over = torch.zeros(1)
blocks = []
while not over:
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        for _ in range(arguments.products):
            matrix @ matrix
        dist.all_reduce(tensor)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        tensor.fill_(1.0)
    end = time.perf_counter()
    blocks.append((begin, end, (end - begin) / arguments.steps))
    if dist.get_rank() == 0:
        arguments.out.with_suffix(".begun").touch()
        over.fill_(float(arguments.out.with_suffix(".end").exists()))
    dist.broadcast(over, 0)  # rank 0 decides for everybody
if dist.get_rank() == 0:
    arguments.out.write_text(json.dumps(blocks))
dist.destroy_process_group()
