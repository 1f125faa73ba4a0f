"""Rank 3 meets a sample it cannot handle and raises; the others stand in DDP's all_reduce."""

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def preprocess(batch, step):
    if dist.get_rank() == 3 and step == 5:
        scene.stops()
        raise ValueError(f"sample {step} has 7 labels, expected 8")
    return batch / 255


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for step in range(1000):
        batch = preprocess(torch.rand(4, 8), step)
        model(batch).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
