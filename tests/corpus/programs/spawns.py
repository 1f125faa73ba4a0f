"""One script starts three ranks with mp.spawn, as notebooks and examples do; rank 2 does what is named."""

import os
import signal
import socket
import sys
import time

import scene
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WHAT = sys.argv[1]


def stops(rank):
    os.environ["RANK"] = str(rank)
    scene.stops()


def odd_step(rank):
    if WHAT == "raises":
        stops(rank)
        raise ValueError("label 11 of 10")
    if WHAT == "killed":
        stops(rank)
        os.kill(os.getpid(), signal.SIGKILL)
    if WHAT == "leaves":
        stops(rank)
        sys.exit(0)
    if WHAT == "works_long":
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            torch.rand(64, 64) @ torch.rand(64, 64)


def odd_start(rank):
    if WHAT == "raises_early":
        stops(rank)
        raise KeyError("DATA_ROOT")
    if WHAT == "killed_early":
        stops(rank)
        os.kill(os.getpid(), signal.SIGKILL)


def train(rank, world, port):
    if rank == 2:
        odd_start(rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    for step in range(40 if WHAT == "works_long" else 2000):
        if rank == 2 and step == 10:
            odd_step(rank)
        dist.all_reduce(torch.rand(8))
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        free = holder.getsockname()[1]
    mp.spawn(train, args=(3, free), nprocs=3)
