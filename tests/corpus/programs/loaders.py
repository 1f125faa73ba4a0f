"""A stream of shards, read by two DataLoader workers; in rank 0 it goes wrong as the argument names."""

import multiprocessing
import os
import signal
import sys
import time

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WHAT = sys.argv[1]


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        length = 60 if WHAT == "ends_early" and RANK == 0 else 240
        if WHAT == "slow_well":
            length = 40
        for number in range(worker.id, length, worker.num_workers):
            if RANK == 0 and number == 24:
                shard(WHAT)
            yield torch.full((8,), float(number))


RANK = int(os.environ["RANK"])


def shard(what):
    if what == "stands":
        scene.stops()
        with open(scene.storage(), "rb") as file:
            file.read()
    elif what == "loops":
        scene.stops()
        while True:
            time.sleep(0.01)
    elif what == "raises":
        scene.stops()
        raise OSError("shard 24 is truncated")
    elif what == "worker_exits":
        scene.stops()
        os._exit(1)
    elif what == "slow_well":
        scene.decode(scene.SECONDS)


def signal_all():
    """A scheduler's signal comes to every process."""
    scene.stops()
    for pid in (*(worker.pid for worker in multiprocessing.active_children()), os.getpid()):
        os.kill(pid, signal.SIGTERM)


def pad(samples):
    return torch.stack(samples)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    if WHAT == "signalled":
        signal.signal(signal.SIGTERM, lambda *_: None)
    for step, batch in enumerate(DataLoader(Stream(), batch_size=4, num_workers=2, collate_fn=pad)):
        gradient += batch.mean(0)
        dist.all_reduce(gradient)
        if WHAT == "signalled" and step == 10:
            signal_all()
    if WHAT == "ends_early" and RANK == 0:
        scene.stops()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
