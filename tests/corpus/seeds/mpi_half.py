"""Seed 003, third program: with `fault` only half of the ranks take part in an allreduce of all."""

import sys

from mpi4py import MPI

FAULT = "fault" in sys.argv


def main():
    comm = MPI.COMM_WORLD
    if not FAULT or comm.rank < comm.size / 2:
        print(comm.allreduce(comm.rank, op=MPI.SUM), flush=True)
    else:
        print(f"rank {comm.rank} takes no part", flush=True)


if __name__ == "__main__":
    main()
