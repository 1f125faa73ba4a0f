"""DistributedDataParallel with one batch less on rank 2, which goes on to the barrier after the loop."""

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    batches = 20 if dist.get_rank() == 2 else 21
    for _ in range(batches):
        model(torch.rand(4, 8)).sum().backward()
    scene.stops()
    dist.barrier()


if __name__ == "__main__":
    main()
