"""A script starts its own processes, by Python's multiprocessing; rank 1 comes late.

`processes.py HOW`: before it joins it waits for a file in short sleeps (`polls_early`), while the others wait
in init_process_group(tcp://…); or it prepares its data, for long (`prepares_long`).
"""

import os
import socket
import sys
import time
from multiprocessing import get_context

import scene
import torch
import torch.distributed as dist

HOW = sys.argv[1]
WORLD = 4


def licence():
    """Wait until a licence is granted, as a file on a shared disk says it."""
    os.environ["RANK"] = "1"
    scene.stops()
    while not os.path.exists(os.path.join(scene.FOLDER, "granted")):
        time.sleep(0.5)


class Evaluator:
    """One of the processes."""

    def __init__(self, rank, port):
        self.rank, self.port = rank, port

    def __call__(self):
        if self.rank == 1:
            licence() if HOW == "polls_early" else scene.decode(scene.SECONDS)
        where = f"tcp://127.0.0.1:{self.port}"
        dist.init_process_group("gloo", init_method=where, rank=self.rank, world_size=WORLD)
        dist.all_reduce(torch.ones(2))
        dist.destroy_process_group()


def main():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    context = get_context("spawn")
    started = []
    for rank in range(WORLD):
        started.append(context.Process(target=Evaluator(rank, port), name=f"evaluator-{rank}"))
        started[-1].start()
    for process in started:
        process.join()
    return max(process.exitcode for process in started)


if __name__ == "__main__":
    sys.exit(main())
