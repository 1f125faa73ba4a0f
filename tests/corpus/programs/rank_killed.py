"""Rank 2 is killed in mid-run, as by somebody's kill -9; the others stand in all_reduce."""

import os
import signal

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 2 and step == 10:
            scene.stops()
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
