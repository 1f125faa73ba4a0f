"""What it takes to record a call, in a loop and in the steps of a training on Gloo, timed on rank 0.

What is recorded does nothing by itself: the wait for another rank takes a thousand times as long, and on a
shared machine the difference of two waits says nothing. In a step the call stands where an all_reduce would,
after forward, backward and optimizer have filled the caches. Each round has one call of each kind, in an
order drawn by lot. Calls of the kind `again` are those of `plain`: their difference is an error.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.c10d_logger import _exception_logger

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, required=True)
parser.add_argument("--calls", type=int, default=100, help="in a loop")
parser.add_argument("--out", type=Path, required=True)
arguments = parser.parse_args()

# Where the kernel happens to put two ranks on one core, or apart, would decide the figure.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
torch.set_num_threads(1)
dist.init_process_group("gloo")
Function = Callable[..., Any]


def nothing(tensor: torch.Tensor, op: Any = None, group: Any = None, async_op: bool = False) -> None:
    """Has the parameters of all_reduce."""


recorded: Function = vars(sys.modules["ddplaunch_ring"])["recorded"]("all_reduce", nothing, 1)
kinds = {"recorded": recorded, "plain": nothing, "again": nothing}
layers = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch, empty = torch.rand(128, 64), torch.zeros(0)


def in_step(call: Function) -> float:
    """Seconds of a call whose tensor is the loss."""
    since, worked = time.perf_counter(), time.thread_time()
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    begin = time.perf_counter()
    call(loss)
    taken = time.perf_counter() - begin
    dist.all_reduce(loss.detach())
    steps.append((time.perf_counter() - since, time.thread_time() - worked))
    return taken


def in_loop(call: Function) -> float:
    """CPU seconds of a call."""
    begin = time.thread_time()
    for _ in range(arguments.calls):
        call(empty)
    calls: int = arguments.calls
    return (time.thread_time() - begin) / calls


def in_wait(call: Function) -> float:
    """CPU seconds of a wait for what is done."""
    works = [reduces(empty, group=alone, async_op=True) for _ in range(arguments.calls)]
    while not all(work.is_completed() for work in works):
        time.sleep(0.0001)
    wait = waits if call is recorded else waits_plainly
    begin = time.thread_time()
    for work in works:
        wait(work)
    calls: int = arguments.calls
    return (time.thread_time() - begin) / calls


def in_async(call: Function) -> float:
    """CPU seconds of the program's thread for an asynchronous all_reduce by one rank, and its wait."""
    reduce, wait = (reduces, waits) if call is recorded else (reduces_plainly, waits_plainly)
    begin = time.thread_time()
    for _ in range(arguments.calls):
        wait(reduce(empty, group=alone, async_op=True))
    calls: int = arguments.calls
    return (time.thread_time() - begin) / calls


alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
reduces: Function = dist.all_reduce
waits: Function = dist.Work.wait
# The hook is inside of torch's own decorator.
reduces_plainly: Function = _exception_logger(vars(dist.all_reduce)["__wrapped__"])
waits_plainly: Function = vars(dist.Work.wait)["__wrapped__"]
lots = random.Random(0)
steps: list[tuple[float, float]] = []
"""Seconds of each, and the CPU seconds among them: a step also waits for the other rank."""
found: dict[str, list[Any]] = {"steps": steps}
for measure in (in_step, in_loop, in_wait, in_async):
    rounds = [
        {kind: measure(kinds[kind]) for kind in lots.sample(sorted(kinds), len(kinds))}
        for _ in range(arguments.rounds)
    ]
    found[measure.__name__] = rounds[10:]  # the first find nothing prepared
if dist.get_rank() == 0:
    arguments.out.write_text(json.dumps(found))
dist.destroy_process_group()
