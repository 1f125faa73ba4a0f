"""Two ranks, two opinions: rank 0 saves behind a barrier, rank 1 reduces. Neither is in the majority."""

import scene
import torch
import torch.distributed as dist


def save_checkpoint():
    scene.stops()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 0 and step == 16:
            save_checkpoint()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
