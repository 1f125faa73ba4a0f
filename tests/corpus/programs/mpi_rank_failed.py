"""Rank 1 raises, and stays in MPI_Finalize, where it waits for the others that wait for it."""

import scene
import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    gradient = torch.ones(8)
    for step in range(1000):
        if comm.rank == 1 and step == 10:
            scene.stops()
            raise ValueError("label 11 is out of range")
        comm.Allreduce(MPI.IN_PLACE, gradient)


if __name__ == "__main__":
    main()
