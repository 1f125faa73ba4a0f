"""Trains several times in one process, as a sweep does; one of its runs fails and is noted."""

import os

import torch
import torch.distributed as dist

for number in range(4):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=0, world_size=1)
    try:
        value = torch.ones(3)
        dist.all_reduce(value, group=None if number != 2 else "wrong")  # type: ignore[arg-type]
        print(number, value.tolist(), flush=True)
    except (TypeError, ValueError, AttributeError) as error:
        print(number, "failed:", type(error).__name__, flush=True)
    finally:
        dist.destroy_process_group()
        if os.path.exists("store"):
            os.unlink("store")
