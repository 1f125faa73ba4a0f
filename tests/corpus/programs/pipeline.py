"""A pipeline of send and recv: each stage gets activations from the one before and hands them on.

At microbatch 20 the stage of the second argument does what the first one names.
"""

import os
import signal
import sys
import time

import scene
import torch
import torch.distributed as dist

MICROBATCHES = 400


def raises():
    scene.stops()
    raise ValueError("activation is nan")


def stands():
    scene.stops()
    with open(scene.storage(), "rb") as file:
        file.read()


def killed():
    scene.stops()
    os.kill(os.getpid(), signal.SIGKILL)


def stopped():
    scene.stops()
    os.kill(os.getpid(), signal.SIGSTOP)


def leaves():
    scene.stops()
    sys.exit(0)


def works_long():
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        torch.rand(64, 64) @ torch.rand(64, 64)


def main():
    dist.init_process_group("gloo")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    layer = torch.nn.Linear(8, 8)
    for number in range(40 if sys.argv[1] == "works_long" else MICROBATCHES):
        activation = torch.rand(4, 8)
        if rank > 0:
            dist.recv(activation, src=rank - 1)
        if rank == int(sys.argv[2]) and number == 20:
            globals()[sys.argv[1]]()
        with torch.no_grad():
            activation = layer(activation)
        if rank < last:
            dist.send(activation, dst=rank + 1)
        if number % 5 == 4:
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
