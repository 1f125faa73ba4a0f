"""Every rank has a progress bar, which a thread redraws while the rank stands in a sleep or in a collective.

`bars.py HOW RANK`: `monitor`, tqdm's own thread redraws it once no step has for some seconds; `clock`, a
thread of the program's shows the time in it each second; `works_long`, as `clock`, but the long step ends.
"""

import os
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist
from tqdm import tqdm

HOW, CULPRIT = sys.argv[1], sys.argv[2]
EPOCH = 100000
STEP = 300
"""The one that is long."""


def clock(bar):
    """Show how late it is."""
    while True:
        time.sleep(1)
        bar.set_postfix_str(time.strftime("%H:%M:%S"))


def upload():
    """Wait for a server whose answer never comes."""
    scene.stops()
    while True:
        time.sleep(0.2)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tqdm.monitor_interval = 1
    with tqdm(total=EPOCH, position=rank, mininterval=0.1, maxinterval=2, desc=f"rank {rank}") as bar:
        if HOW != "monitor":
            threading.Thread(target=clock, args=(bar,), daemon=True).start()
        for step in range(STEP + 10 if HOW == "works_long" else EPOCH):
            if str(rank) == CULPRIT and step == STEP:
                if HOW == "works_long":
                    scene.decode(scene.SECONDS)
                else:
                    upload()
            dist.all_reduce(torch.rand(8))
            bar.update()
    print("rank", os.environ["RANK"], "has trained", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
