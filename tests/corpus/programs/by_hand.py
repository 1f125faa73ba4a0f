"""Ranks wait for one another by means of their own: a file, keys, a lock, a server. The argument says how."""

import os
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist


def train(steps):
    for _ in range(steps):
        dist.all_reduce(torch.rand(8))


def marker():
    """Rank 0 writes the file after the barrier, and the others come to the barrier after the file."""
    train(20)
    done = os.path.join(scene.FOLDER, "index.done")
    scene.stops()
    if dist.get_rank() == 0:
        dist.barrier()
        open(done, "w").close()
    while not os.path.exists(done):
        time.sleep(0.2)
    dist.barrier()


class Gate:
    """All ranks put a key of their own, and wait for those of all."""

    def __init__(self):
        self.store, self.opened = dist.distributed_c10d._get_default_store(), 0

    def key(self, rank):
        return f"gate/{self.opened}/{rank}"

    def enter(self):
        self.store.set(self.key(dist.get_rank()), "1")
        self.store.wait([self.key(rank) for rank in range(dist.get_world_size())])
        self.opened += 1


def gate():
    """Rank 2 has opened its gate once more."""
    its = Gate()
    for turn in range(3):
        train(10)
        if turn == 2:
            scene.stops()
            its.opened += dist.get_rank() == 2
        its.enter()


class Saver(threading.Thread):
    """Saves what all ranks have at the same time, and keeps the training out meanwhile."""

    def __init__(self, lock, group):
        super().__init__(daemon=True)
        self.lock, self.group, self.wanted = lock, group, threading.Event()

    def run(self):
        self.wanted.wait()
        if dist.get_rank() == 0:
            time.sleep(1)  # it makes room first
        with self.lock:
            dist.barrier(group=self.group)


def lock():
    """On rank 0 the training has the lock first, on the others the saver."""
    guard = threading.Lock()
    saver = Saver(guard, dist.new_group())
    saver.start()
    for step in range(40):
        if step == 20:
            saver.wanted.set()
        with guard:
            train(1)
        if step == 20:
            scene.stops()
        time.sleep(0.05)


def merge(path, counts):
    """One rank at a time: whoever has made the file may write."""
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.1)
    most = max(counts)
    os.unlink(path)
    return most


def lock_file():
    """Rank 1 raises between the two, and goes on."""
    path = os.path.join(scene.FOLDER, "counts.lock")
    for step in range(30):
        train(1)
        if step % 10 == 5 and dist.get_rank() == step // 10:
            if step == 25:
                scene.stops()
            try:
                merge(path, [] if dist.get_rank() == 1 else [1])
            except ValueError as error:
                print(f"no counts: {error}", flush=True)


def serve(workers):
    gradient = torch.empty(4)
    for _ in range(20):
        for worker in workers:
            dist.recv(gradient, src=worker)
            dist.send(gradient, dst=worker)


def work(rounds):
    for _ in range(rounds):
        dist.send(torch.rand(4), dst=0)
        dist.recv(torch.empty(4), src=0)


def server():
    """Rank 2 has fewer batches than the server expects."""
    if dist.get_rank() == 0:
        serve(range(1, dist.get_world_size()))
    else:
        work(15 if dist.get_rank() == 2 else 20)
    scene.stops()
    dist.barrier()


def outside():
    """Rank 2 does not come to its group. Rank 3 does, which is not in it, and needs nobody for that."""
    train(20)
    if dist.get_rank() != 2:
        dist.new_group([0, 1, 2])
    scene.stops()
    train(5)


GROUPS = {}


def group_of(*ranks):
    """Make each group once, when it is wanted."""
    if ranks not in GROUPS:
        GROUPS[ranks] = dist.new_group(ranks)
    return GROUPS[ranks]


def log(value):
    if dist.get_rank() == 0:
        return
    dist.all_reduce(value, group=group_of(1, 2, 3))


def cached():
    """Rank 0 has made a group less when all make one."""
    for step in range(20):
        train(1)
        if step % 5 == 0:
            log(torch.rand(1))
    scene.stops()
    dist.all_reduce(torch.rand(1), group=group_of(0, 1, 2, 3))


def number():
    """The program counts the ranks by itself, and so rank 3 calls itself rank 2."""
    return min(int(os.environ["RANK"]), 2)


def slots():
    train(1)


if __name__ == "__main__":
    if sys.argv[1] == "slots":
        scene.stops()
        dist.init_process_group("gloo", rank=number(), world_size=4)
    else:
        dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
