"""Each step reduces, shares the scale, and gathers; at step 9 rank 2 goes on without the scale."""

import scene
import torch
import torch.distributed as dist


def share_scale(scale, step):
    if dist.get_rank() == 2 and step == 9:
        scene.stops()
        return  # it thinks that its own is still good
    dist.broadcast(scale, src=0)


def main():
    dist.init_process_group("gloo")
    gradient, scale = torch.rand(8), torch.ones(1)
    for step in range(1000):
        dist.all_reduce(gradient)
        share_scale(scale, step)
        dist.all_gather([torch.empty(1) for _ in range(dist.get_world_size())], scale)


if __name__ == "__main__":
    main()
