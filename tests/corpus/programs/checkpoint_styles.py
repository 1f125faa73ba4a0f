"""Ways to save, to resume and to share a folder; the argument says which."""

import concurrent.futures
import contextlib
import json
import os
import pickle
import sys
import time

import scene
import torch
import torch.distributed as dist

FOLDER = os.path.join(scene.FOLDER, "checkpoints")


def train(weights, steps):
    for _ in range(steps):
        gradient = torch.rand(16)
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient


def asynchronous(group):
    """DCP gathers in a thread of its own, on the group that it is given: by default on that of training."""
    import torch.distributed.checkpoint as dcp

    class Writer(dcp.FileSystemWriter):
        def write_data(self, plan, planner):
            if group is not None:
                time.sleep(scene.SECONDS / 9 if dist.get_rank() == 1 else 0)
            return super().write_data(plan, planner)

    weights, pending = torch.zeros(16), None
    for epoch in range(3):
        train(weights, 10)
        if pending is not None:
            pending.result()
        if epoch == 1 and group is None:
            scene.stops()
        writer = Writer(os.path.join(FOLDER, str(epoch)))
        pending = dcp.async_save({"weights": weights}, storage_writer=writer, process_group=group)
        if group is None and epoch == 1 and dist.get_rank() == 1:
            time.sleep(1)  # a profiler that writes its trace
        train(weights, 10)
    pending.result()


def shares_group():
    asynchronous(None)


def own_group():
    asynchronous(dist.new_group(backend="gloo"))


class Shards:
    """Storage on which rank 2's second write fails once."""

    writes = 0

    def write(self, path, data):
        self.writes += 1
        if dist.get_rank() == 2 and self.writes == 2:
            raise OSError(116, "Stale file handle", path)
        with open(path, "wb") as file:
            file.write(data)


def save(shards, step):
    for _ in range(5):
        try:
            shards.write(os.path.join(FOLDER, f"{step}-{dist.get_rank()}.bin"), b"shard")
            break
        except OSError as error:
            print(f"cannot write: {error}", flush=True)
            dist.barrier()
            time.sleep(0.1)
    if step == 1:
        scene.stops()
    dist.barrier()


def retries():
    os.makedirs(FOLDER, exist_ok=True)
    shards = Shards()
    for step in range(10):
        train(torch.zeros(16), 1)
        save(shards, step)


def ensure(folder):
    if not os.path.exists(folder):
        if dist.get_rank() == 0:
            os.makedirs(folder)
        scene.stops()
        dist.barrier()


def exists():
    """Who comes late sees the folder that rank 0 has made, and does not wait for it."""
    for epoch in range(3):
        time.sleep(0.3 * dist.get_rank())
        ensure(os.path.join(FOLDER, str(epoch)))
        if dist.get_rank():
            scene.stops()
        train(torch.zeros(16), 5)


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank():
        dist.barrier()
    yield
    if not dist.get_rank():
        dist.barrier()


def node_folder():
    """Rank 0 makes the cache in the scratch folder of its node; ranks 2 and 3 have another one."""
    folder = os.path.join(scene.FOLDER, f"scratch-{dist.get_rank() // 2}")
    os.makedirs(folder, exist_ok=True)
    cache = os.path.join(folder, "tokens.pkl")
    with main_process_first():
        if not dist.get_rank():
            with open(cache, "wb") as file:
                pickle.dump([[1.0] * 16] * 100, file)
        else:
            scene.stops()
        with open(cache, "rb") as file:
            rows = pickle.load(file)
    for row in rows:
        dist.all_reduce(torch.tensor(row))


def build(marker, rows):
    """Write the rows, and then the marker; an error is only printed."""
    try:
        with open(f"{marker}.json", "w") as file:
            json.dump(rows, file)
        open(marker, "w").close()
    except TypeError as error:
        print(f"no cache: {error}", flush=True)


def wait_for(marker):
    while not os.path.exists(marker):
        time.sleep(0.2)


def marker_missing():
    marker = os.path.join(scene.FOLDER, "_SUCCESS")
    scene.stops()
    if dist.get_rank() == 0:
        build(marker, [{"tokens": {1, 2}}])
    else:
        wait_for(marker)
    train(torch.zeros(16), 10)


def marker_late():
    marker = os.path.join(scene.FOLDER, "_SUCCESS")
    if dist.get_rank() == 0:
        scene.decode(scene.SECONDS)
        build(marker, [{"tokens": [1, 2]}])
    else:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(wait_for, marker).result()
    train(torch.zeros(16), 10)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
