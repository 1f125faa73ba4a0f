"""Rank 1 imports and compiles for long before it reaches init_process_group; the others wait there."""

import os
import time

import scene
import torch.distributed as dist


def compile_kernels():
    source = "\n".join(f"def f{i}(x):\n    return x + {i}" for i in range(2000))
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        compile(source, "kernels.py", "exec")


def main():
    if os.environ["RANK"] == "1":
        compile_kernels()
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
