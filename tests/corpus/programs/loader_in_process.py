"""Rank 0 loads its data in its own process (num_workers=0) and waits for storage that does not answer."""

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if dist.get_rank() == 0 and index == 12:
            scene.stops()
            with open(scene.storage(), "rb") as file:
                file.read()
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Shards(), batch_size=2):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
