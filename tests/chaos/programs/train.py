"""A training of steps that are all alike, and what goes wrong in it. It prints when its fault begins."""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--fault", default="")
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--at", type=int, default=5)
arguments = parser.parse_args()


def load() -> None:
    """Where a hanging rank stands."""
    while True:
        time.sleep(3600)


def go_wrong(fault: str) -> None:
    """Fail as asked, or go on."""
    print(f"fault: {fault}", flush=True)
    if fault == "hang":
        load()
    elif fault == "raise":
        raise ValueError("bad sample")
    elif fault == "exit":
        sys.exit(3)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """All steps."""
    dist.init_process_group("gloo")
    for step in range(arguments.steps):
        mine = dist.get_rank() == arguments.rank
        if mine and arguments.fault == "slow":
            time.sleep(0.6)
        elif mine and step == arguments.at:
            go_wrong(arguments.fault)
        dist.all_reduce(torch.ones(1))
        print(f"step {step}", flush=True)
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
