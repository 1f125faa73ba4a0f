"""Rank 1 cannot reach its storage, catches that, and waits for better times; the others wait for it."""

import time

import scene
import torch
import torch.distributed as dist


def fetch(step):
    if dist.get_rank() == 1 and step == 7:
        raise TimeoutError("object store: no answer from 10.0.0.9")
    return torch.rand(8)


def fetch_patiently(step):
    try:
        return fetch(step)
    except TimeoutError:
        scene.stops()
        time.sleep(3600)


def main():
    dist.init_process_group("gloo")
    gradient = torch.zeros(8)
    for step in range(40):
        gradient += fetch_patiently(step)
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
