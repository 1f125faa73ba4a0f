"""Rank 1 sends twice of what rank 0 has room for."""

import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        comm.Recv(torch.zeros(8), source=1)
    elif comm.rank == 1:
        comm.Send(torch.zeros(16), dest=0)
    comm.Barrier()


if __name__ == "__main__":
    main()
