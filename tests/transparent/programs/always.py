"""Rank 1 raises in every attempt, before its group is made: torchrun gives up. Each attempt leaves a file."""

import os
import time
from pathlib import Path

rank = os.environ["RANK"]
Path(f"attempt-{os.environ['TORCHELASTIC_RESTART_COUNT']}-rank-{rank}").touch()
if rank == "1":
    raise RuntimeError("always")
time.sleep(60)
