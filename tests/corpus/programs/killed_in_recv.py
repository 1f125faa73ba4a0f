"""Rank 1 receives what rank 0 has not sent yet, and is killed there, as by somebody's kill -9."""

import os
import signal
import threading

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    activation = torch.rand(8)
    for _ in range(10):
        dist.all_reduce(activation)
    if dist.get_rank() == 1:
        threading.Timer(2.0, killed).start()
        dist.recv(activation, src=0)
    dist.barrier()


def killed():
    scene.stops()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
