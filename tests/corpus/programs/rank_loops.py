"""Rank 3 searches for something that is not there, and burns its CPU for ever; the others wait in barrier."""

import scene
import torch
import torch.distributed as dist


def next_free_slot(taken, slot):
    while slot in taken:
        slot = (slot + 1) % 8
    return slot


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 3 and step == 10:
            scene.stops()
            next_free_slot(set(range(8)), 0)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
