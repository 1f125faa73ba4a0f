"""Rank 1 raises in the training."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(4)
for _ in range(10):
    dist.all_reduce(value)
if dist.get_rank() == 1:
    raise RuntimeError("out of memory, say")
dist.all_reduce(value)
