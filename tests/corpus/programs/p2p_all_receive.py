"""Halo exchange in a ring: each of three ranks receives from the next before it sends to the one before."""

import scene
import torch
import torch.distributed as dist


def exchange(halo, rank, size):
    dist.recv(halo, src=(rank + 1) % size)
    dist.send(halo, dst=(rank - 1) % size)


def main():
    dist.init_process_group("gloo")
    halo = torch.rand(16)
    for _ in range(10):
        dist.all_reduce(halo)
    scene.stops()
    exchange(halo, dist.get_rank(), dist.get_world_size())
    dist.barrier()


if __name__ == "__main__":
    main()
