"""Prints a line, works for some seconds, and prints another. With --trains it does so in ranks of torch."""

import os
import sys
import time

first = os.environ.get("RANK", "0") == "0"
if first:
    print("begins")
if "--trains" in sys.argv:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.ones(1024)
    for _ in range(5000):
        dist.all_reduce(value)
        value.fill_(1.0)
    dist.destroy_process_group()
else:
    until = time.process_time() + 2
    while time.process_time() < until:
        pass
if first:
    print("ends")
