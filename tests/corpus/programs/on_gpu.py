"""In step 10 rank 1 does on its GPU what the argument names; every step ends with the loss on the CPU.

With a second argument, `timed`, torch notes what has started on the GPU.
"""

import os
import sys

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CYCLES = 1_000_000_000
"""Of a GPU that are about half a second."""
BAD = 'extern "C" __global__ void write_far(float *at) { at[1L << 40] = 1.0f; }'


def endless_kernel():
    scene.stops()
    torch.cuda._sleep(1 << 45)


def out_of_memory():
    scene.stops()
    torch.empty(1 << 40, dtype=torch.uint8)


def index_too_large():
    scene.stops()
    torch.rand(4)[torch.tensor([9])]


def bad_pointer():
    scene.stops()
    torch.cuda._compile_kernel(BAD, "write_far")((1, 1, 1), (1, 1, 1), (torch.rand(4),))


def computes_long():
    for _ in range(2 * int(scene.SECONDS)):
        torch.cuda._sleep(CYCLES)


def nothing():
    pass


def main():
    what = sys.argv[1]
    if "timed" in sys.argv:
        os.environ["TORCH_NCCL_ENABLE_TIMING"] = "1"
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    healthy = what in ("computes_long", "nothing")
    for step in range(30 if healthy else 1000):
        if step == 10 and (dist.get_rank() == 1 or what == "computes_long"):
            globals()[what]()
        loss = model(torch.rand(256, 64)).square().mean()
        loss.backward()
        loss.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
