"""Every step computes for long on all ranks, through many functions, without a word."""

import time

import scene
import torch
import torch.distributed as dist


def forward(weights):
    return torch.tanh(weights @ weights)


def backward(output):
    return (output - output.mean()) / 100


def main():
    dist.init_process_group("gloo")
    weights = torch.rand(200, 200)
    for _ in range(2):
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            weights = backward(forward(weights))
        dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
