"""Ranks 0 and 1 swap their parts, and both send first. Rank 2 waits for them in a barrier."""

import scene
import torch
import torch.distributed as dist


def swap(part, peer):
    scene.stops()
    dist.send(part, dst=peer)
    other = torch.empty_like(part)
    dist.recv(other, src=peer)
    return other


def main():
    dist.init_process_group("gloo")
    part = torch.rand(1 << 20)
    for _ in range(5):
        dist.all_reduce(part)
    rank = dist.get_rank()
    if rank < 2:
        part = swap(part, 1 - rank)
    dist.barrier()


if __name__ == "__main__":
    main()
