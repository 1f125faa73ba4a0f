"""Rank 1 is stopped by a signal in mid-training, as by a suspended shell; the others wait for its part."""

import os
import signal

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            scene.stops()
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
