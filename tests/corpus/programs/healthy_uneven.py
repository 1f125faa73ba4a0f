"""The ranks need very different times for their steps, and meet after each."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(4):
        share = (dist.get_rank() + step) % dist.get_world_size() / dist.get_world_size()
        scene.decode(scene.SECONDS * share)
        dist.all_reduce(gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
