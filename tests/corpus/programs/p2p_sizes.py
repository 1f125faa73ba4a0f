"""Rank 0 sends more bytes than rank 1 receives, after step 13: by a longer tensor, or by a wider dtype."""

import sys

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    weights = torch.rand(1000)
    for step in range(20):
        dist.all_reduce(weights)
        if dist.get_rank() == 0:
            message = weights
            if step == 13:
                scene.stops()
                message = torch.rand(1200) if sys.argv[1] == "longer" else weights.double()
            dist.send(message, dst=1)
        if dist.get_rank() == 1:
            dist.recv(weights, src=0)
    dist.barrier()


if __name__ == "__main__":
    main()
