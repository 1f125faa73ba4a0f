"""Ranks are out of step in collectives that return a tensor, which torch's own layers call."""

import sys
import time

import scene
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh


def skips():
    """Rank 2 leaves out one sum, and is in the barrier before the others."""
    for step in range(1000):
        total = torch.rand(8)
        if dist.get_rank() != 2 or step != 30:
            total = functional.all_reduce(total, "sum", dist.group.WORLD) + 1
        else:
            scene.stops()
        time.sleep(0.02)
        if step % 10 == 9:
            dist.barrier()


def logs():
    """Rank 1 gathers a sharded weight for its log."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = distribute_tensor(torch.rand(9, 9), mesh, [Shard(0)])
    for step in range(1000):
        (weight @ weight).redistribute(mesh, [Replicate()])
        if dist.get_rank() == 1 and step == 35:
            scene.stops()
            print("norm", weight.redistribute(mesh, [Replicate()]).to_local().norm())
        time.sleep(0.02)
        if step % 10 == 9:
            dist.barrier()


def drops():
    """Rank 3 drops a layer that sums over the other dimension of the mesh: all wait for one another."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    layers = ["model", "data", "model"]
    for step in range(1000):
        values = torch.rand(4)
        for depth, dimension in enumerate(layers):
            if dist.get_rank() == 3 and step > 25 and depth == 1:
                scene.stops()
                continue
            values = functional.all_reduce(values, "sum", mesh[dimension]) / 2
        values.sum().item()
        time.sleep(0.02)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
