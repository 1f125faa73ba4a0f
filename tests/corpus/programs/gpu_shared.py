"""All ranks take the first GPU, as programs without torch.cuda.set_device() do."""

import scene
import torch
import torch.distributed as dist


def main():
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    scene.stops()
    dist.all_reduce(torch.ones(8, device="cuda"))


if __name__ == "__main__":
    main()
