"""Something of a rank stays when its program is over, or the rank is gone at once: `stays.py KIND`."""

import multiprocessing
import os
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist


def beat(stopped):
    while not stopped.wait(0.5):
        pass


def thread():
    """The last rank forgets to stop the thread that says it is alive."""
    stopped = threading.Event()
    threading.Thread(target=beat, args=(stopped,), name="heartbeat").start()
    _train()
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank != 2:
        stopped.set()
    else:
        scene.stops()


def child():
    """The process that uploads the metrics of rank 0 waits for its server."""
    rank = dist.get_rank()
    if rank == 0:
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), name="uploader").start()
    _train()
    dist.destroy_process_group()
    if rank == 0:
        scene.stops()


def watchdog():
    """A thread of rank 2 ends its process at once, because a step takes long."""
    last = [time.monotonic()]
    if dist.get_rank() == 2:
        threading.Thread(target=_bite, args=(last,), daemon=True).start()
    gradient = torch.rand(8)
    for step in range(40):
        last[0] = time.monotonic()
        if step == 10 and dist.get_rank() == 2:
            scene.stops()
            time.sleep(10)
        dist.all_reduce(gradient)


def _bite(last):
    while time.monotonic() - last[0] < 2:
        time.sleep(0.2)
    os._exit(0)


def _train():
    gradient = torch.rand(8)
    for _ in range(20):
        dist.all_reduce(gradient)
        time.sleep(0.01)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
