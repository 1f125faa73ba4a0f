"""Only the lower half of the ranks calls allreduce, on the communicator of all; the others are done."""

import scene
import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    gradient = torch.ones(8)
    for _ in range(10):
        gradient = comm.allreduce(gradient, op=MPI.SUM) / comm.Get_size()
    scene.stops()
    if comm.Get_rank() < comm.Get_size() / 2:
        comm.allreduce(gradient, op=MPI.SUM)


if __name__ == "__main__":
    main()
