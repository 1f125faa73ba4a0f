"""A DataLoader worker decodes for long; its rank, and so all ranks, only wait for the batch."""

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Videos(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((8,), float(scene.decode(scene.SECONDS / 2 if dist.get_rank() == 0 else 0)))


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Videos(), num_workers=1):
        gradient += batch.sum()
        dist.all_reduce(gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
