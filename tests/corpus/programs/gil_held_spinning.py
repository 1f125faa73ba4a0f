"""A thread of rank 0 matches a pattern that backtracks without end, and holds the GIL; rank 1 waits."""

import re
import threading

import scene
import torch
import torch.distributed as dist


def clean(text):
    scene.stops()
    return re.match(r"(\w+\s?)+$", text)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 0 and step == 10:
            cleaner = threading.Thread(target=clean, args=("word " * 40 + "!",), name="cleaner")
            cleaner.start()
            cleaner.join()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
