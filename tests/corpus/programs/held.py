"""Exceptions that end no rank yet: the argument names what runs first."""

import concurrent.futures
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist


class Tracker:
    """Its server does not answer."""

    def finish(self):
        threading.Event().wait()


def train(step_of_fault, who=(0, 1)):
    for step in range(1000):
        if step == step_of_fault and dist.get_rank() in who:
            scene.stops()
            raise ValueError("a vocabulary of 32001 is not a multiple of 8")
        dist.all_reduce(torch.rand(8))


def by_finally():
    """All ranks have failed; rank 0 has a tracker, and the others meet before they end."""
    try:
        train(10)
    finally:
        if dist.get_rank() == 0:
            Tracker().finish()
        dist.barrier()


def by_with():
    """The pool waits for its thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if dist.get_rank() == 0:
            pool.submit(threading.Event().wait)
        train(10, who=(0,))


def by_except():
    """All ranks have failed; rank 0 reports it to somebody who does not answer, the others have ended."""
    try:
        train(10)
    except ValueError:
        if dist.get_rank() == 0:
            Tracker().finish()
        dist.destroy_process_group()
        sys.exit(1)


def by_nothing():
    """A job that trains in the `except` in which it has found no checkpoint is healthy."""
    try:
        open("no-checkpoint")  # noqa: SIM115
    except OSError:
        for _ in range(10):
            dist.all_reduce(torch.rand(8))
        if dist.get_rank() == 0:
            until = time.monotonic() + scene.SECONDS
            while time.monotonic() < until:
                scene.decode(0.5)
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
