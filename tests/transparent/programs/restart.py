"""Rank 1 raises in the first attempt; in the second both train. Each attempt leaves a file of each rank."""

import os
import sys
import time
from pathlib import Path

attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
Path(f"attempt-{attempt}-rank-{rank}").write_text(f"of {os.environ['WORLD_SIZE']}\n")
if attempt == "0" and rank == "1":
    raise RuntimeError("a file is not there yet")
if attempt == "0":
    time.sleep(60)  # until torchrun ends it: how far it would get is chance
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(8)
for _ in range(5):
    dist.all_reduce(value)
dist.destroy_process_group()
sys.stdout.write(f"rank {rank} trained\n")
