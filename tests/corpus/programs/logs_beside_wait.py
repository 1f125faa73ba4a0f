"""Rank 1 evaluates for ever; rank 0 waits beside a thread, rank 2 beside a child, that write all the time."""

import multiprocessing
import os
import threading
import time

import scene
import torch
import torch.distributed as dist


def measure(path):
    """Keep the load of the machine in a file, and say that it was done."""
    with open(path, "w") as file:
        while True:
            file.write(f"{os.getloadavg()}\n" * 4000)
            file.flush()
            file.seek(0)
            print("measured", flush=True)
            time.sleep(0.3)


def evaluate():
    scene.stops()
    time.sleep(3600)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    load = os.path.join(scene.FOLDER, f"load-{rank}")
    if rank == 0:
        threading.Thread(target=measure, args=(load,), daemon=True).start()
    if rank == 2:
        multiprocessing.get_context("fork").Process(target=measure, args=(load,), daemon=True).start()
    gradient = torch.rand(8)
    for step in range(1000):
        if rank == 1 and step == 10:
            evaluate()
        dist.all_reduce(gradient)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
