"""A program that starts its ranks itself, by mp.spawn. The rank that STUCK names stays in `load_shard`."""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

NODES, HERE = 2, 2


def load_shard():
    """Wait for storage that does not answer."""
    time.sleep(3600)


def train(local_rank):
    """Add up ten times."""
    rank = int(os.environ["NODE_RANK"]) * HERE + local_rank
    dist.init_process_group("gloo", rank=rank, world_size=NODES * HERE)
    for step in range(10):
        if step == 5 and str(rank) == os.environ.get("STUCK"):
            load_shard()
        dist.all_reduce(torch.ones(8))
    print("rank", rank, "of", dist.get_world_size(), "has trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, nprocs=HERE)
