"""Rank 0 sends its weights with one tag, rank 1 waits for another; rank 2 is in a barrier."""

import scene
import torch
import torch.distributed as dist

WEIGHTS, GRADIENTS = 7, 8


def main():
    dist.init_process_group("gloo")
    weights = torch.rand(1000)
    for step in range(20):
        dist.all_reduce(weights)
        if dist.get_rank() == 0:
            work = dist.isend(weights, dst=1, tag=WEIGHTS)
            work.wait()
        if dist.get_rank() == 1:
            tag = GRADIENTS if step == 13 else WEIGHTS
            if step == 13:
                scene.stops()
            work = dist.irecv(weights, src=0, tag=tag)
            work.wait()
    dist.barrier()


if __name__ == "__main__":
    main()
