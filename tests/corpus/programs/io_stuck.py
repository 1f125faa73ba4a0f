"""Rank 1 writes its checkpoint to a file server that does not answer; the others wait in all_reduce."""

import os

import scene
import torch
import torch.distributed as dist


def save(folder, step):
    with open(os.path.join(folder, f"step-{step}.pt"), "wb") as file:
        torch.save({"step": step}, file)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            folder = scene.dead_server()
            scene.stops()
            save(folder, step)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
