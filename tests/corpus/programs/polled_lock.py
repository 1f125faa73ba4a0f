"""Rank 1 builds for ever under a lock; the other ranks try for that lock again and again, as libraries do."""

import os
import sys
import time

import filelock
import scene
import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

LOCK = os.path.join(scene.FOLDER, "lock")


def compiles():
    open(f"{LOCK}.begun", "w").close()
    scene.stops()
    with open(scene.storage(), "rb") as file:
        return file.read()


def with_filelock():
    """As torch's inductor does, and the hub of Hugging Face."""
    with filelock.FileLock(LOCK):
        compiles()


def with_baton():
    """As torch does when it builds an extension."""
    baton = FileBaton(LOCK)
    if baton.try_acquire():
        try:
            compiles()
        finally:
            baton.release()
    else:
        baton.wait()


def left_over():
    """A build that was killed has left its lock behind."""
    open(LOCK, "a").close()
    scene.stops()
    with_baton()


def main():
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(1))
    rank, how = dist.get_rank(), sys.argv[1]
    while rank != 1 and how != "left_over" and not os.path.exists(f"{LOCK}.begun"):
        time.sleep(0.1)
    if rank != 2 or how != "left_over":
        globals()[how]()
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
