"""Rank 1 fails before init_process_group; the others wait for it there."""

import json
import os

import scene
import torch.distributed as dist


def read_config():
    if os.environ["RANK"] == "1":
        scene.stops()
        return json.loads("{'epochs': 3}")
    return {"epochs": 3}


def main():
    read_config()
    dist.init_process_group("gloo")
    dist.barrier()


if __name__ == "__main__":
    main()
