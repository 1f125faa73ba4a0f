"""Three neighbours share a group with each other, and each calls the one with its right neighbour first."""

import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    pairs = [dist.new_group(pair) for pair in ([0, 1], [1, 2], [0, 2])]
    rank = dist.get_rank()
    edge = torch.rand(4)
    for _ in range(3):
        dist.all_reduce(edge)
    scene.stops()
    dist.all_reduce(edge, group=pairs[rank])
    dist.all_reduce(edge, group=pairs[rank - 1])


if __name__ == "__main__":
    main()
