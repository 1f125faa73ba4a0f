"""Rank 0 broadcasts its parameters over a thin link: bytes move all the time, nothing else does."""

import scene
import thin_link
import torch
import torch.distributed as dist

SIZE = 32 * 1024 * 1024


def main():
    dist.init_process_group("gloo")
    parameters = torch.rand(SIZE // 4)
    dist.barrier()
    thin_link.limit(SIZE / scene.SECONDS)
    dist.broadcast(parameters, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
