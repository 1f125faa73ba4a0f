"""Rank 1 begins to send its result to rank 0 and ends, without a wait; rank 0 is not there yet."""

import time

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    result = torch.rand(1 << 20)
    for _ in range(5):
        dist.all_reduce(result)
    if dist.get_rank() == 1:
        scene.stops()
        dist.isend(result, dst=0)
    if dist.get_rank() == 0:
        time.sleep(2)  # it has more to do
        dist.recv(result, src=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
