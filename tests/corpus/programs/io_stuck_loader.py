"""A DataLoader worker of rank 0 opens a sample on a file server that has stopped answering."""

import os

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if dist.get_rank() == 0 and index == 12:
            folder = scene.dead_server(after_mount=True)
            scene.stops()
            os.stat(os.path.join(folder, f"sample-{index}.npy"))
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Samples(), batch_size=2, num_workers=2):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
