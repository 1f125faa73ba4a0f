"""Run another program of this folder with NCCL, all its ranks on one GPU: `on_nccl.py PROGRAM [ARGUMENT]`.

NCCL refuses two ranks of one host on one GPU. With a NCCL_HOSTID of its own each rank passes for a host, and
they talk over sockets. The program's tensors are made on the GPU.
"""

import os
import runpy
import sys

import torch
import torch.distributed as dist

join = dist.init_process_group


def with_nccl(_backend=None, **more):
    """Join the job as the program asks, but by NCCL."""
    join("nccl", **more)


def main():
    os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    torch.cuda.set_device(0)
    torch.set_default_device("cuda")
    dist.init_process_group = with_nccl
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
