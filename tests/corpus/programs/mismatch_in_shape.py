"""Rank 2's last batch is longer than the others', and it reduces per-sample losses: Gloo aborts."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    for step in range(1000):
        samples = 16
        if dist.get_rank() == 2 and step == 16:
            scene.stops()
            samples = 64
        losses = torch.rand(samples)
        dist.all_reduce(losses)


if __name__ == "__main__":
    main()
