"""Rank 0 receives from rank 1, which sends nothing at the last step; all but rank 0 are in a barrier."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    summary = torch.zeros(3)
    for step in range(10):
        if rank == 1 and step < 9:
            dist.send(summary, dst=0)
        if rank == 0:
            if step == 9:
                scene.stops()
            dist.recv(summary, src=1)
        dist.barrier()


if __name__ == "__main__":
    main()
