"""Rank 0 waits for a message with tag 7; rank 1 sends one with tag 5, too large to be kept for later."""

import scene
import torch
from mpi4py import MPI


def main():
    comm = MPI.COMM_WORLD
    state = torch.zeros(1 << 20)
    comm.Barrier()
    scene.stops()
    if comm.rank == 0:
        comm.Recv(state, source=1, tag=7)
    elif comm.rank == 1:
        comm.Send(state, dest=0, tag=5)
    comm.Barrier()


if __name__ == "__main__":
    main()
