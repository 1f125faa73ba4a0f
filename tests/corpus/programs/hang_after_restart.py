"""Rank 1 cannot open its data, torchrun starts all again, and rank 1 waits for a file that never comes."""

import os
import time

import scene
import torch
import torch.distributed as dist

FIRST = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def open_data():
    if os.environ["RANK"] == "1":
        raise RuntimeError("the shard is broken")
    time.sleep(60)  # until torchrun ends it: Gloo does not always find its peers in a second round


def wait_for_shard(path):
    scene.stops()
    while not os.path.exists(path):
        time.sleep(0.5)


def main():
    if FIRST:
        open_data()
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            wait_for_shard(os.path.join(scene.FOLDER, "mended-shard"))
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
