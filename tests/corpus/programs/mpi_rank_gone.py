"""Rank 2 leaves without a word, and without MPI_Finalize, while the others go on."""

import os

import scene
import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    gradient = torch.ones(8)
    for step in range(1000):
        if comm.rank == 2 and step == 10:
            scene.stops()
            os._exit(0)
        comm.Allreduce(MPI.IN_PLACE, gradient)


if __name__ == "__main__":
    main()
