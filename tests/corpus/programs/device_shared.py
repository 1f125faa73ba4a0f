"""Both ranks raise what NCCL 2.20.5 raised when it found them on one GPU (issue 161 of verl-project/verl)."""

import torch.distributed as dist

WORDS = """NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid usage (run with \
NCCL_DEBUG=WARN for details), NCCL version 2.20.5
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank {} and rank {} both on CUDA device 10"""


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    rank = dist.get_rank()
    raise dist.DistBackendError(WORDS.format(rank, 1 - rank))


if __name__ == "__main__":
    main()
