"""DDP sends its model to the other ranks over a thin link: bytes move all the time, nothing else does."""

import thin_link
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SIZE = 48 * 1024 * 1024


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(SIZE // (4 * 2048 * 2048))))
    DistributedDataParallel(torch.nn.Linear(1, 1))  # imports for seconds
    thin_link.limit(SIZE / 60)
    DistributedDataParallel(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
