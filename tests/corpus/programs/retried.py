"""Ranks try a barrier again that has timed out, while rank 1 reads from storage: `retried.py barrier`."""

import datetime
import time

import scene
import torch
import torch.distributed as dist


def meet():
    while True:
        try:
            return dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
        except RuntimeError:
            time.sleep(0.5)


def main():
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(8))
    if dist.get_rank() == 1:
        scene.stops()
        with open(scene.storage(), "rb") as file:
            file.read()
    meet()


if __name__ == "__main__":
    main()
