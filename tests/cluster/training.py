"""A training whose steps are all alike, and what can go wrong with it: the same on every scheduler."""

from __future__ import annotations

import sys
from pathlib import Path

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
import torch.utils.data

{before}

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(10000):
        {step}
        dist.all_reduce(torch.ones(1000))
        if step == 3:
            print("up", flush=True)
        time.sleep(0.05)

if __name__ == "__main__":
    main()
"""
"""With a fault: `before` stands above `main`, `step` is done in each step."""


SIX_STEPS = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(6):
    if step == 3 and str(dist.get_rank()) in sys.argv[1:]:
        time.sleep(1000)
    dist.all_reduce(torch.ones(4))
print("trained with", dist.get_world_size(), flush=True)
"""
"""It ends by itself; ranks that are named in the arguments sleep before their fourth step."""


def hangs(rank: int) -> str:
    """A program in which this rank sleeps in the sixth step."""
    return TRAIN.format(before="", step=f"if rank == {rank} and step == 5: time.sleep(3600)")


NEVER = """
class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index > 3:
            time.sleep(3600)
        return index

loader = None
def batch(rank):
    global loader
    if rank == 1:
        loader = loader or iter(torch.utils.data.DataLoader(Stuck(), num_workers=1))
        next(loader)
"""
GREEDY = """
held = []
def eat():
    held.append(bytearray(os.urandom(1 << 20)) * 64)
"""
