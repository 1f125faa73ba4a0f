"""Rank 1 keeps every batch it has seen, until the memory cgroup's limit is reached."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    seen = []
    gradient = torch.rand(8)
    for step in range(100000):
        if dist.get_rank() == 1 and step >= 10:
            scene.stops()
            seen.append(torch.ones(4 * 1024 * 1024))  # 16 MiB
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
