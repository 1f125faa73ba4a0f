"""Rank 1 begins the last sum without a wait, and the others come later: with Gloo, its end waits."""

import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    loss = torch.rand(4)
    for _ in range(8):
        dist.all_reduce(loss)
    if dist.get_rank() == 1:
        dist.all_reduce(loss, async_op=True)
    else:
        time.sleep(2)
        dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
