"""A DataLoader worker of rank 1 keeps what it decoded in /dev/shm, until there is no room for a page."""

from multiprocessing import shared_memory

import numpy
import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.kept = []

    def __len__(self):
        return 10000

    def __getitem__(self, index):
        if dist.get_rank() == 1 and index >= 20:
            scene.stops()
            memory = shared_memory.SharedMemory(create=True, size=16 * 1024 * 1024)
            numpy.ndarray(memory.size, numpy.uint8, buffer=memory.buf)[:] = 1
            self.kept.append(memory)
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Images(), batch_size=2, num_workers=1):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
