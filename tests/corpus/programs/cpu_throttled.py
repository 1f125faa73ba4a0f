"""Rank 1's cgroup gets a quota of a few hundredths of a CPU in mid-training; its steps need a whole one."""

import scene
import torch
import torch.distributed as dist


def step(gradient):
    return gradient + scene.compute(0.8)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for number in range(1000):
        if dist.get_rank() == 1 and number == 4:
            scene.enter_cpu_cgroup()
            scene.stops()
        gradient = step(gradient)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
