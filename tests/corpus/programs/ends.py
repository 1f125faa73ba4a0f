"""Rank 1 leaves DDP's training loop in the way that its argument names; the others wait for it."""

import os
import signal
import subprocess
import sys

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def exit_code():
    sys.exit(3)


def os_exit_code():
    os._exit(7)


def exit_well():
    sys.exit(0)


def os_exit_well():
    os._exit(0)


def terminated():
    os.kill(os.getpid(), signal.SIGTERM)


def aborts():
    os.abort()


def killed_by_child():
    subprocess.run(["/bin/sh", "-c", f"kill -KILL {os.getpid()}"], check=False)


def floating_point_signal():
    os.kill(os.getpid(), signal.SIGFPE)


def debugger():
    breakpoint()


def command_fails():
    subprocess.run(["tar", "-xf", "/no/such/shard.tar"], check=True)


def out_of_range():
    torch.nn.Embedding(10, 4)(torch.tensor([12]))


def exception_chain():
    try:
        {}["label"]
    except KeyError as error:
        raise RuntimeError("sample 10 cannot be read") from error


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            scene.stops()
            globals()[sys.argv[1]]()
        model(torch.rand(4, 8)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
