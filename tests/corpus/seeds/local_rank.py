"""Seeds 000 and 001 speak of ranks assigned wrongly: with `fault` the rank is taken from LOCAL_RANK."""

import os
import sys

import torch
import torch.distributed as dist

FAULT = "fault" in sys.argv


def main():
    rank = int(os.environ["LOCAL_RANK" if FAULT else "RANK"])
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
