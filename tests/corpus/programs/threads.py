"""The training loop gets its batches from a thread; in rank 0 that thread or the loop does what is named."""

import atexit
import concurrent.futures
import queue
import subprocess
import sys
import threading

import scene
import torch
import torch.distributed as dist

BATCHES = queue.Queue(4)
WHAT = sys.argv[1]


def odd(number):
    return dist.get_rank() == 0 and number == 10


def prepare():
    for number in range(40 if WHAT == "works_long" else 500):
        if odd(number) and WHAT == "thread_raises":
            scene.stops()
            raise ValueError("cannot decode sample 10")
        if odd(number) and WHAT == "works_long":
            scene.decode(scene.SECONDS)
        BATCHES.put(torch.rand(8))


def train():
    for number in range(40 if WHAT == "works_long" else 500):
        if odd(number) and WHAT == "waits_for_command":
            scene.stops()
            subprocess.run(["sh", "-c", "sleep 3600"], check=True, stdout=subprocess.PIPE)
        if odd(number) and WHAT == "trainer_stands":
            flush()
        if odd(number) and WHAT == "hangs_at_exit":
            atexit.register(flush)
            sys.exit(0)
        if odd(number) and WHAT == "trainer_raises":
            scene.stops()
            raise ArithmeticError("loss is not finite")
        dist.all_reduce(BATCHES.get())


def flush():
    scene.stops()
    with open(scene.storage(), "rb") as file:
        file.read()


def main():
    dist.init_process_group("gloo")
    threading.Thread(target=prepare, daemon=True).start()
    if WHAT == "trainer_stands":
        trainer = threading.Thread(target=train)
        trainer.start()
        trainer.join()
    if WHAT == "trainer_raises":  # in a thread of a pool, whose result re-raises it
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(train).result()
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
