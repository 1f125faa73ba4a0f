"""Rank 0 has mapped a data set that is written anew in place: the pages behind its new end are gone."""

import os

import numpy
import scene
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    path = os.path.join(scene.FOLDER, f"data-{dist.get_rank()}.bin")
    numpy.zeros(4 * 1024 * 1024, numpy.uint8).tofile(path)
    data = numpy.memmap(path, numpy.uint8, "r")
    gradient = torch.zeros(8)
    for step in range(1000):
        if dist.get_rank() == 0 and step == 10:
            scene.stops()
            with open(path, "wb") as file:
                file.write(b"version 2")
        gradient += float(data[step * 4096 : step * 4096 + 4096].sum())
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
