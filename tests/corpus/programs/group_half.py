"""A group has all four ranks, and only the lower half of them calls its all_reduce."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    everybody = dist.new_group([0, 1, 2, 3])
    value = torch.rand(4)
    for _ in range(5):
        dist.all_reduce(value)
    scene.stops()
    if dist.get_rank() < dist.get_world_size() // 2:
        dist.all_reduce(value, group=everybody)
    dist.barrier()


if __name__ == "__main__":
    main()
