"""Seed 002, second program: one worker feeds the training; with `fault` one of its reads never ends."""

import os
import sys

import torch
import torch.distributed as dist
import torch.utils.data

FAULT = "fault" in sys.argv


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        if FAULT and os.environ["RANK"] == "1" and index == 40:
            read_end, _ = os.pipe()
            os.read(read_end, 1)
        return torch.ones(10)


def main():
    dist.init_process_group("gloo")
    loader = torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    for batch in loader:
        model(batch).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
