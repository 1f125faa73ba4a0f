"""Ranks exchange Python objects and meet in monitored barriers; rank 1 does what the argument names."""

import sys
import threading
from datetime import timedelta

import scene
import torch
import torch.distributed as dist


def cannot_be_pickled():
    scene.stops()
    dist.all_gather_object([None] * dist.get_world_size(), {"lock": threading.Lock()})


def key_never_set():
    scene.stops()
    dist.distributed_c10d._get_default_store().get("config-of-rank-9")


def asks_first():
    scene.stops()
    dist.distributed_c10d._get_default_store().wait(["epoch-ready"], timedelta(hours=1))


def other_call():
    scene.stops()
    dist.broadcast_object_list([None], src=0)


def prepares_long():
    scene.decode(scene.SECONDS)


def main():
    what = sys.argv[1]
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    for epoch in range(12 if what == "prepares_long" else 500):
        results = [None] * world
        if dist.get_rank() == 1 and epoch == 8:
            globals()[what]()
        dist.all_gather_object(results, {"epoch": epoch, "loss": torch.rand(1).item()})
        if epoch % 3 == 2:
            dist.monitored_barrier(timeout=timedelta(minutes=5))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
