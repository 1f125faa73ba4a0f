"""Rank 1 joins its prefetching thread, which waits for the next request; rank 0 waits in backward()."""

import queue
import threading

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def prefetch(requests, batches):
    while requests.get() is not None:
        batches.put(torch.rand(4, 8))


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    requests, batches = queue.Queue(), queue.Queue()
    prefetcher = threading.Thread(target=prefetch, args=(requests, batches), name="prefetcher")
    prefetcher.start()
    for step in range(1000):
        requests.put(step)
        batch = batches.get()
        if dist.get_rank() == 1 and step == 10:
            scene.stops()
            prefetcher.join()
        model(batch).sum().backward()


if __name__ == "__main__":
    main()
