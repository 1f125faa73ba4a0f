"""A DataLoader worker of rank 2 waits for storage that does not answer; the others wait in all_reduce."""

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if dist.get_rank() == 2 and index == 12:
            scene.stops()
            with open(scene.storage(), "rb") as file:
                file.read()
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Shards(), batch_size=2, num_workers=2):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
