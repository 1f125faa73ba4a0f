"""Many small steps in one loop, without a word: seen from outside, every rank is always in the same line."""

import time

import scene
import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    gradient = torch.rand(8)
    going = torch.ones(1)
    until = time.monotonic() + 2 * scene.SECONDS
    while going.item() > 0:
        comm.Allreduce(MPI.IN_PLACE, gradient)
        gradient /= comm.size
        going[0] = time.monotonic() < until
        comm.Bcast(going, root=0)


if __name__ == "__main__":
    main()
