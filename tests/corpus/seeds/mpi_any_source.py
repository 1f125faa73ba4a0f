"""Seed 003, first program: one receive from anybody, where every other rank sends.

With `fault` the messages are too large to be sent ahead: a sender that is not received waits. Rank 1 is
received first, so that it is known which senders are left.
"""

import sys

import torch
from mpi4py import MPI

FAULT = "fault" in sys.argv


def main():
    comm = MPI.COMM_WORLD
    count = 1 << 20 if FAULT else 10
    if comm.rank == 0:
        buffer = torch.zeros(count * comm.size, dtype=torch.int64)
        for _ in range(1 if FAULT else comm.size - 1):
            comm.Recv(buffer.numpy(), source=MPI.ANY_SOURCE)
        print(buffer.sum(), flush=True)
        return
    if comm.rank > 1:
        comm.recv(source=1)
    comm.Send(torch.full((count,), comm.rank).numpy(), dest=0)
    if comm.rank == 1:
        for other in range(2, comm.size):
            comm.send("now you", dest=other)


if __name__ == "__main__":
    main()
