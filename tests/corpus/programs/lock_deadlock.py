"""Two threads of rank 2 take two locks in opposite order; the others wait in all_reduce."""

import threading

import scene
import torch
import torch.distributed as dist

model_lock, file_lock = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def write_checkpoint():
    with file_lock:
        both.wait()
        with model_lock:
            pass


def update():
    with model_lock:
        both.wait()
        scene.stops()
        with file_lock:
            pass


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(1000):
        if dist.get_rank() == 2 and step == 10:
            threading.Thread(target=write_checkpoint, name="writer").start()
            update()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
