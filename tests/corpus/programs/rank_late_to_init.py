"""Rank 1 loads its data before init_process_group, from storage that does not answer."""

import os

import scene
import torch.distributed as dist


def load_dataset():
    if os.environ["RANK"] == "1":
        scene.stops()
        with open(scene.storage(), "rb") as file:
            return file.read()
    return b"samples"


def main():
    load_dataset()
    dist.init_process_group("gloo")
    dist.barrier()


if __name__ == "__main__":
    main()
