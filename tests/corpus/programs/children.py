"""Rank 0 needs another process: `children.py KIND`."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist

JOBS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")


def tokenize(batches):
    for number in range(1000):
        if number == 20:
            scene.stops()
            os.kill(os.getpid(), signal.SIGKILL)
        batches.put([float(number)] * 8)


def is_killed():
    """The memory killer takes it, and the queue stays empty."""
    context = multiprocessing.get_context("fork")
    batches = context.Queue(maxsize=2)
    if dist.get_rank() == 0:
        context.Process(target=tokenize, args=(batches,), daemon=True).start()
    for _ in range(1000):
        dist.all_reduce(torch.tensor(batches.get() if dist.get_rank() == 0 else [1.0] * 8))


def is_watched():
    """A thread asks whether it lives, and so the kernel forgets it."""
    context = multiprocessing.get_context("fork")
    batches = context.Queue(maxsize=2)
    if dist.get_rank() == 0:
        helper = context.Process(target=tokenize, args=(batches,), daemon=True, name="tokenizer")
        helper.start()
        threading.Thread(target=watch, args=(helper,), daemon=True).start()
    for _ in range(1000):
        dist.all_reduce(torch.tensor(batches.get() if dist.get_rank() == 0 else [1.0] * 8))


def watch(helper):
    while helper.is_alive():
        time.sleep(0.2)


def joins():
    """It evaluates, and takes the variables of the job for its own."""
    _run(dict(os.environ))


def trains_alone():
    """A program with a job of its own is nobody's rank."""
    own = {name: value for name, value in os.environ.items() if name not in JOBS and "ELASTIC" not in name}
    own.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    _run(own)


def _run(environment):
    for step in range(40):
        dist.all_reduce(torch.rand(8))
        if step == 10 and dist.get_rank() == 0:
            scene.stops()
            subprocess.run([sys.executable, __file__, "evaluates"], env=environment, check=True)


def evaluates():
    if os.environ["WORLD_SIZE"] == "1":
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            scene.decode(0.5)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
