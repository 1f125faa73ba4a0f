"""Rank 2 forks while one of its threads holds a mutex of a C library: `forked.py KIND`."""

import ctypes
import multiprocessing
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LIBRARY = ctypes.CDLL(None)
MUTEX = (ctypes.c_char * 64)()
WHAT = sys.argv[1]


def decode(number):
    LIBRARY.pthread_mutex_lock(MUTEX)
    LIBRARY.pthread_mutex_unlock(MUTEX)
    return torch.full((4,), float(number))


class Images(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        return decode(number)


def warm_cache(taken):
    LIBRARY.pthread_mutex_lock(MUTEX)
    taken.set()
    time.sleep(2)
    LIBRARY.pthread_mutex_unlock(MUTEX)
    while WHAT == "loader":  # this one lives on, and so its name is known
        time.sleep(1)


def odd(epoch):
    if dist.get_rank() == 2 and epoch == 1:
        taken = threading.Event()
        threading.Thread(target=warm_cache, args=(taken,), name="warm-cache", daemon=True).start()
        taken.wait()
        scene.stops()


def loader():
    for epoch in range(3):
        odd(epoch)
        for batch in DataLoader(Images(), 4, num_workers=1):
            dist.all_reduce(batch)


def helper():
    for epoch in range(3):
        odd(epoch)
        process = multiprocessing.get_context("fork").Process(target=decode, args=(epoch,))
        process.start()
        process.join()
        dist.all_reduce(torch.rand(8))


def score(answer):
    total = torch.rand(1)
    dist.all_reduce(total)
    answer.send(total.item())


def metric():
    """A child of rank 2 uses the group that it has inherited."""
    for epoch in range(3):
        if dist.get_rank() == 2 and epoch == 1:
            ours, theirs = multiprocessing.Pipe()
            multiprocessing.get_context("fork").Process(target=score, args=(theirs,)).start()
            scene.stops()
            ours.recv()
        dist.all_reduce(torch.rand(8))


if __name__ == "__main__":
    LIBRARY.pthread_mutex_init(MUTEX, None)
    dist.init_process_group("gloo")
    globals()[WHAT]()
