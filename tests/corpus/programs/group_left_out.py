"""Rank 0 reduces in its group with rank 1; all others, rank 1 among them, are in a barrier of all ranks."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    leaders = dist.new_group([0, 1])
    rank = dist.get_rank()
    value = torch.rand(4)
    for _ in range(5):
        dist.all_reduce(value)
    scene.stops()
    if rank == 0:  # rank 1 was meant, too
        dist.all_reduce(value, group=leaders)
    dist.barrier()


if __name__ == "__main__":
    main()
