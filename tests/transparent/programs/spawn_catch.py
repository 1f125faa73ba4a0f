"""Catches the exception of mp.spawn's rank, and trains once more with a smaller batch."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank: int, fails: bool, place: str) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{place}")
    value = torch.ones(4)
    for _ in range(5):
        dist.all_reduce(value)
    if fails and rank == 1:
        raise RuntimeError("batch too large")
    dist.barrier()
    dist.destroy_process_group()


def place(name: str) -> str:
    path = os.path.abspath(f"store-{name}-{os.getpid()}")
    if os.path.exists(path):
        os.unlink(path)
    return path


if __name__ == "__main__":
    try:
        mp.spawn(work, args=(True, place("a")), nprocs=2)
    except mp.ProcessRaisedException as error:
        frames = [line.strip() for line in str(error).splitlines() if line.startswith("  File")]
        print("caught", [frame.rpartition("/")[2] for frame in frames], flush=True)
    mp.spawn(work, args=(False, place("b")), nprocs=2)
    for name in ("a", "b"):
        place(name)
    print("done", flush=True)
    sys.exit(0)
