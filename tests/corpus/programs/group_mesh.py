"""A mesh of 2 x 2: two of the ranks reduce over their row first, the other two over their column."""

import scene
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    rank = dist.get_rank()
    gradient = torch.rand(16)
    for step in range(8):
        order = ["data", "tensor"]
        if step == 5:
            scene.stops()
            order = order if rank in (1, 2) else order[::-1]
        for dimension in order:
            dist.all_reduce(gradient, group=mesh.get_group(dimension))


if __name__ == "__main__":
    main()
