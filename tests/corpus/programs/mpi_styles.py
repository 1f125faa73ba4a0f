"""MPI ranks reduce step by step; rank 1 does what its argument names in step 10."""

import os
import signal
import subprocess
import sys

import scene
import torch
from mpi4py import MPI

COMM = MPI.COMM_WORLD


def exits():
    sys.exit(3)


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def waits_for_command():
    subprocess.run(["sleep", "3600"], check=True)


def receives_from_all():
    COMM.recv(source=MPI.ANY_SOURCE, tag=99)


def works_long():
    scene.decode(scene.SECONDS)


def main():
    for step in range(30 if sys.argv[1] == "works_long" else 2000):
        if COMM.rank == 1 and step == 10:
            if sys.argv[1] != "works_long":
                scene.stops()
            globals()[sys.argv[1]]()
        loss = torch.rand(4)
        COMM.Allreduce(MPI.IN_PLACE, loss.numpy())


if __name__ == "__main__":
    main()
