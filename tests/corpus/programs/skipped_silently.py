"""Two sums of equal shape, and a norm, each step; rank 1 leaves out one, and lacks one at the end."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    loss, accuracy, norm = torch.rand(1), torch.rand(1), torch.rand(1)
    for step in range(20):
        dist.all_reduce(loss)
        if dist.get_rank() != 1 or step != 5:
            dist.all_reduce(accuracy)
        dist.all_reduce(norm)
    scene.stops()
    dist.barrier()


if __name__ == "__main__":
    main()
