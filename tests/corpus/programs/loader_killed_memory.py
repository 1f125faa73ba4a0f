"""A DataLoader worker of rank 0 decompresses something far too large for the memory cgroup."""

import scene
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, index):
        if dist.get_rank() == 0 and index == 20:
            scene.stops()
            return torch.ones(4 * 1024 * 1024 * 1024)  # 16 GiB
        return torch.ones(8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for batch in DataLoader(Images(), batch_size=2, num_workers=1):
        gradient += batch.sum()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
