"""At one step rank 3 broadcasts where the others reduce."""

import scene
import torch
import torch.distributed as dist


def train(step, gradient):
    dist.all_reduce(gradient)


def share_best(gradient):
    scene.stops()
    dist.broadcast(gradient, 0)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 3 and step == 16:
            share_best(gradient)
        train(step, gradient)


if __name__ == "__main__":
    main()
