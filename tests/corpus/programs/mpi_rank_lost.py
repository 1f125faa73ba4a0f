"""Rank 1 reads its data before it imports MPI, from storage that does not answer."""

import os

import scene


def load_dataset():
    if os.environ["RANK"] == "1":
        scene.stops()
        with open(scene.storage(), "rb") as file:
            return file.read()
    return b"samples"


def main():
    load_dataset()
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    main()
