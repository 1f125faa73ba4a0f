"""Native code of rank 1 waits for a device and holds the GIL; the others wait in all_reduce."""

import ctypes

import scene
import torch
import torch.distributed as dist

libc = ctypes.PyDLL(None)  # unlike CDLL, it does not release the GIL


def read_device():
    scene.stops()
    while True:
        libc.pause()


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 1 and step == 10:
            read_device()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
