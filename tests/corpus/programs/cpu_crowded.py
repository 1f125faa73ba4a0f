"""Rank 1 shares its one CPU with helpers that it has started, and that the scheduler prefers."""

import os
import subprocess
import sys

import scene
import torch
import torch.distributed as dist


def crowd():
    """Start helpers that never rest, and stand back behind them."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(2):
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    os.nice(19)


def step(gradient):
    return gradient + scene.compute(0.8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for number in range(1000):
        if dist.get_rank() == 1 and number == 4:
            crowd()
            scene.stops()
        gradient = step(gradient)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
