"""Rank 1 runs native code that reads where it must not (SIGSEGV)."""

import ctypes

import scene
import torch
import torch.distributed as dist


def native_kernel():
    scene.stops()
    ctypes.string_at(0)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            native_kernel()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
