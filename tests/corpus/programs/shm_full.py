"""Rank 1 shares its samples through /dev/shm, which takes the name and has no room for the pages."""

from multiprocessing import shared_memory

import numpy
import scene
import torch
import torch.distributed as dist


def share(samples):
    """Return a copy that other processes of this node can open by its name."""
    memory = shared_memory.SharedMemory(create=True, size=samples.nbytes)
    shared = numpy.ndarray(samples.shape, samples.dtype, buffer=memory.buf)
    shared[:] = samples
    return memory


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            scene.stops()
            share(numpy.ones(200 * 1024 * 1024, numpy.uint8))
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
