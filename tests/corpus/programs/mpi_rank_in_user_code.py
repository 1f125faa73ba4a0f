"""Rank 0 writes a checkpoint to storage that does not answer, the others are in the next barrier."""

import scene
from mpi4py import MPI


def save_checkpoint():
    scene.stops()
    with open(scene.storage(), "wb") as file:
        file.write(b"weights")


def main():
    comm = MPI.COMM_WORLD
    for step in range(20):
        if comm.rank == 0 and step == 10:
            save_checkpoint()
        comm.Barrier()


if __name__ == "__main__":
    main()
