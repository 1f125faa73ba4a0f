"""Gradients are accumulated over four batches with no_sync; in between rank 1 does what is named."""

import contextlib
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

OVER = 4


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    odd = dist.get_rank() == 1
    over = OVER + 1 if odd and sys.argv[1] == "counts_differently" else OVER
    for number in range(40 if sys.argv[1] == "works_long" else 400):
        if odd and number == 21:
            between(sys.argv[1])
        synchronizes = number % over == over - 1
        with contextlib.nullcontext() if synchronizes else model.no_sync():
            model(torch.rand(4, 8)).sum().backward()
    if odd:
        scene.stops()
    dist.barrier()
    dist.destroy_process_group()


def between(what):
    if what == "waits_for_event":
        scene.stops()
        threading.Event().wait()
    if what == "raises":
        scene.stops()
        raise FloatingPointError("gradient overflow in batch 21")
    if what == "works_long":
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            torch.rand(64, 64) @ torch.rand(64, 64)


if __name__ == "__main__":
    main()
