"""Rank 2 stands in its own code; the timeout is so short that the others fail before a watcher speaks."""

import sys
import time
from datetime import timedelta

import scene
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout


def main():
    dist.init_process_group("gloo")
    dist.barrier()  # on a busy machine the ranks come seconds apart, which is not the fault of this program
    _set_pg_timeout(timedelta(seconds=float(sys.argv[1])))
    for step in range(1000):
        if dist.get_rank() == 2 and step == 10:
            scene.stops()
            time.sleep(3600)
        if sys.argv[2] == "barrier":
            dist.monitored_barrier()
        else:
            dist.all_reduce(torch.rand(8))


if __name__ == "__main__":
    main()
