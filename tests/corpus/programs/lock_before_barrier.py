"""Rank 0 holds a lock in the barrier, rank 1 needs that lock to get there: neither can go on."""

import fcntl
import os

import scene
import torch.distributed as dist


def prepare(cache):
    if dist.get_rank() == 0:
        fcntl.flock(cache, fcntl.LOCK_EX)
    dist.barrier()
    if dist.get_rank() == 1:
        scene.stops()
        fcntl.flock(cache, fcntl.LOCK_EX)
        fcntl.flock(cache, fcntl.LOCK_UN)
    dist.barrier()
    if dist.get_rank() == 0:
        fcntl.flock(cache, fcntl.LOCK_UN)


def main():
    dist.init_process_group("gloo")
    with open(os.path.join(scene.FOLDER, "cache.lock"), "w") as cache:
        prepare(cache)
    dist.barrier()


if __name__ == "__main__":
    main()
