"""Seed 003, second program: rank 0 is late to each barrier; with `fault` rank 1 raises before one of them."""

import sys
import time

from mpi4py import MPI

FAULT = "fault" in sys.argv


def main():
    comm = MPI.COMM_WORLD
    for step in range(6):
        if comm.rank == 0:
            time.sleep(0.5)
        if FAULT and comm.rank == 1 and step == 3:
            raise ValueError("no such shard")
        comm.Barrier()


if __name__ == "__main__":
    main()
