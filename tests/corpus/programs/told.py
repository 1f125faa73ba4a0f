"""The ranks handle a signal that comes in the middle of training: `told.py KIND`."""

import os
import signal
import subprocess
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist

FLAG = [0.0]


def set_flag(number, frame):
    FLAG[0] = 1.0


def save_now(number, frame):
    scene.stops()
    dist.barrier()
    torch.save(FLAG, os.path.join(scene.FOLDER, "saved.pt"))


def send(number):
    """The scheduler's warning comes to all ranks at the same moment."""
    pids = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == 0:
        subprocess.Popen(["sh", "-c", f"sleep 2; kill -{number} {' '.join(map(str, pids))}"])


def apart():
    """Each rank looks at its flag in a step of its own; rank 2 does so in another part of the step."""
    signal.signal(signal.SIGTERM, set_flag)
    send(15)
    gradient = torch.rand(8)
    late = dist.get_rank() == 2
    while not FLAG[0]:
        time.sleep(0.2 if not late else 0)
        dist.all_reduce(gradient)
        time.sleep(0.2 if late else 0)
    scene.stops()
    every = [torch.zeros(8) for _ in range(dist.get_world_size())]
    dist.all_gather(every, gradient)


def half():
    """Two of the tasks are warned, and leave; nothing is agreed."""
    signal.signal(signal.SIGUSR1, set_flag)
    warned = dist.get_rank() in (1, 2)
    gradient = torch.rand(8)
    for step in range(2000):
        if step == 30 and warned:
            os.kill(os.getpid(), signal.SIGUSR1)
        if FLAG[0]:
            break
        time.sleep(0.02)
        dist.all_reduce(gradient)
    scene.stops()
    dist.barrier()


def in_handler():
    """Only one task gets the signal, and its handler calls a collective at once."""
    signal.signal(signal.SIGUSR1, save_now)
    if dist.get_rank() == 0:
        threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    gradient = torch.rand(8)
    for _ in range(2000):
        time.sleep(0.02)
        dist.all_reduce(gradient)


def together():
    """The flag is reduced, all save in the same step, and rank 0 takes its time for it."""
    signal.signal(signal.SIGUSR1, set_flag)
    if dist.get_rank() == 0:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    gradient = torch.rand(8)
    for _ in range(100):
        wanted = torch.tensor(FLAG)
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)
        if wanted.item():
            FLAG[0] = 0.0
            if dist.get_rank() == 0:
                scene.decode(scene.SECONDS)
            dist.barrier()
        dist.all_reduce(gradient)
        time.sleep(0.03)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
