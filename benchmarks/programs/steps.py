"""Small all_reduces, every other of them asynchronous, timed on rank 0, until a file says that it is enough:
the step of a job that hardly computes, or that multiplies matrices as well. Steps come in blocks, of which
begin, end and seconds a step are written. While a file is there, the functions of torch are called past the
hook. With NCCL all ranks share one GPU."""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.c10d_logger import _exception_logger

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20, help="in a block")
parser.add_argument("--products", type=int, default=0, help="of matrices, in a step")
parser.add_argument("--rows", type=int, default=512, help="of each matrix, which is square")
parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
parser.add_argument("--out", type=Path, required=True, help="and .begun, .plain, .end beside it")
arguments = parser.parse_args()

# Where the kernel happens to put two ranks on one core, or apart, would decide the figure.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
torch.set_num_threads(1)
if arguments.backend == "nccl":
    # NCCL refuses two ranks of one host on one GPU.
    os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.cuda.set_device(0)
    torch.set_default_device("cuda")
dist.init_process_group(arguments.backend)
hooked = dist.all_reduce, dist.Work.wait
# The hook is inside of torch's own decorator.
past_the_hook = _exception_logger(vars(dist.all_reduce)["__wrapped__"]), vars(dist.Work.wait)["__wrapped__"]
matrix = torch.rand(arguments.rows, arguments.rows)
tensor = torch.ones(1024)
plain, over = torch.zeros(1), torch.zeros(1)
blocks = []
while not over:
    reduce, wait = past_the_hook if plain else hooked
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        for _ in range(arguments.products):
            matrix @ matrix
        reduce(tensor)
        work = reduce(tensor, async_op=True)
        wait(work)
        tensor.fill_(1.0)
    if arguments.backend == "nccl":
        torch.cuda.synchronize()
    end = time.perf_counter()
    blocks.append((begin, end, (end - begin) / arguments.steps))
    if dist.get_rank() == 0:
        arguments.out.with_suffix(".begun").touch()
        plain.fill_(float(arguments.out.with_suffix(".plain").exists()))
        over.fill_(float(arguments.out.with_suffix(".end").exists()))
    for flag in (plain, over):  # rank 0 decides for everybody
        dist.broadcast(flag, 0)
if dist.get_rank() == 0:
    arguments.out.write_text(json.dumps(blocks))
dist.destroy_process_group()
