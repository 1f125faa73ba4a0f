"""Rank 1 makes the call that its argument names where the others reduce eight floats."""

import sys

import scene
import torch
import torch.distributed as dist


def other_dtype():
    dist.all_reduce(torch.rand(8, dtype=torch.float64))


def other_order():
    dist.all_gather([torch.zeros(8) for _ in range(dist.get_world_size())], torch.rand(8))
    dist.all_reduce(torch.rand(8))


def extra_barrier():
    dist.barrier()
    dist.all_reduce(torch.rand(8))


def only_gathers():
    dist.all_gather([torch.zeros(8) for _ in range(dist.get_world_size())], torch.rand(8))


def main():
    dist.init_process_group("gloo")
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            scene.stops()
            globals()[sys.argv[1]]()
        dist.all_reduce(torch.rand(8))
        if step % 2:
            dist.all_gather([torch.zeros(8) for _ in range(dist.get_world_size())], torch.rand(8))


if __name__ == "__main__":
    main()
