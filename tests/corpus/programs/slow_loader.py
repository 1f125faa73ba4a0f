"""Rank 2's data come slowly: its DataLoader takes seconds a batch, in which the others wait for it."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(1 if dist.get_rank() == 2 else 0.05)
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Shards(), batch_size=2):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
