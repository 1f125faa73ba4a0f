"""Rank 0 evaluates alone and waits for a result that nobody delivers; the others wait in backward()."""

import queue

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def evaluate(results):
    scene.stops()
    return results.get()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for step in range(1000):
        if dist.get_rank() == 0 and step == 5:
            evaluate(queue.Queue())
        model(torch.rand(4, 8)).sum().backward()


if __name__ == "__main__":
    main()
