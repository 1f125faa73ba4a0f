"""Rank 1 hands an exchange with rank 0 to batch_isend_irecv and ends without a wait; rank 0 comes later."""

import time

import scene
import torch
import torch.distributed as dist


def exchange(mine, peer):
    theirs = torch.empty_like(mine)
    return dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    part = torch.rand(1 << 20)
    for _ in range(3):
        dist.all_reduce(part)
    if rank == 1:
        scene.stops()
        exchange(part, 0)
    if rank == 0:
        time.sleep(2)
        dist.recv(part, src=1)
        dist.send(part, dst=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
