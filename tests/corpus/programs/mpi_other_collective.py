"""Rank 2 evaluates one step early: it is in a barrier while the others reduce."""

import scene
import torch
from mpi4py import MPI


def train(comm, steps):
    gradient = torch.ones(8)
    for _ in range(steps):
        comm.Allreduce(MPI.IN_PLACE, gradient)


def main():
    comm = MPI.COMM_WORLD
    train(comm, 10)
    scene.stops()
    if comm.rank != 2:
        train(comm, 1)
    comm.Barrier()


if __name__ == "__main__":
    main()
