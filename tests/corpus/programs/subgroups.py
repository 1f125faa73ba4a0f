"""Two groups of two ranks reduce on their own, and all meet every fifth step; rank 2 does what is named.

With `mesh` as the second word the groups are those of a device mesh, data parallel and tensor parallel.
"""

import sys
import time

import scene
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def groups():
    rank = dist.get_rank()
    if "mesh" in sys.argv:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")).get_group("tp")
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return pairs[rank // 2]


def odd_step(what):
    if what == "stands":
        scene.stops()
        with open(scene.storage(), "rb") as file:
            file.read()
    if what == "raises":
        scene.stops()
        raise IndexError("expert 9 of 8")
    if what == "leaves":
        scene.stops()
        sys.exit(0)
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        torch.rand(64, 64) @ torch.rand(64, 64)


def main():
    dist.init_process_group("gloo")
    group = groups()
    for step in range(40 if sys.argv[1] == "works_long" else 1000):
        if dist.get_rank() == 2 and step == 12:
            odd_step(sys.argv[1])
        dist.all_reduce(torch.rand(8), group=group)
        if step % 5 == 4:
            dist.all_reduce(torch.rand(8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
