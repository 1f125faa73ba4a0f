"""Jobs that end well. In each one something takes long, as the argument names, and all others wait for it."""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import scene
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


def steps(number):
    for _ in range(number):
        dist.all_reduce(torch.rand(8))


def checkpoint():
    """Rank 0 writes a large file piece by piece, and compresses it."""
    steps(10)
    if dist.get_rank() == 0:
        with open(os.path.join(scene.FOLDER, "checkpoint"), "wb") as file:
            until = time.monotonic() + scene.SECONDS
            while time.monotonic() < until:
                file.seek(0)
                file.write(os.urandom(1 << 20))
                file.flush()
    dist.barrier()


def subprocess_():
    """Rank 1 waits for a program that computes."""
    steps(10)
    if dist.get_rank() == 1:
        code = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\n"
        code += "while time.monotonic() < end: sum(range(1000))"
        subprocess.run([sys.executable, "-c", code, str(scene.SECONDS)], check=True)
    steps(10)


def monitored_barrier():
    """Rank 1 comes late to a barrier that looks at the time."""
    steps(10)
    if dist.get_rank() == 1:
        scene.decode(scene.SECONDS)
    dist.monitored_barrier(timeout=timedelta(minutes=5))


def late_key():
    """Rank 1 waits for a key that rank 0 sets after long work."""
    steps(10)
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        scene.decode(scene.SECONDS)
        store.set("split", "ready")
    store.wait(["split"], timedelta(minutes=5))
    steps(10)


def retries():
    """Rank 1 catches what its storage raises, and tries again with success, step by step."""
    for step in range(40):
        for attempt in range(3):
            try:
                if dist.get_rank() == 1 and attempt < 2 and step % 4 == 0:
                    raise TimeoutError("object store: 503 slow down")
                break
            except TimeoutError:
                time.sleep(0.05)
        steps(1)


def parses():
    """Rank 2 parses one large text after another: each is a single call of C."""
    steps(10)
    if dist.get_rank() == 2:
        text = json.dumps([{"id": number, "text": "x" * 40} for number in range(200_000)])
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            json.loads(text)
    steps(10)


def tail():
    """Rank 1 is done and gone; rank 0 still writes its report, and needs nobody for it."""
    steps(10)
    dist.barrier()
    dist.destroy_process_group()
    if os.environ["RANK"] == "0":
        scene.decode(scene.SECONDS)


def exit_work():
    """Rank 1 has long work in a handler that runs at its exit."""
    steps(10)
    if dist.get_rank() == 1:
        atexit.register(scene.decode, scene.SECONDS)


def overlaps():
    """Reductions are issued early and waited for after the computation."""
    gradient = torch.rand(1 << 16)
    for _ in range(3):
        work = dist.all_reduce(gradient, async_op=True)
        scene.decode(scene.SECONDS / 4)
        work.wait()


def dribbles():
    """Rank 0 reads its data from a slow server: bytes come all the time."""
    steps(10)
    if dist.get_rank() == 0:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        with socket.create_connection(server.getsockname()) as client:
            while client.recv(1 << 16):
                pass
    steps(10)


def serve(server):
    connection, _ = server.accept()
    until = time.monotonic() + scene.SECONDS
    while time.monotonic() < until:
        connection.sendall(os.urandom(1 << 12))
        time.sleep(0.01)
    connection.close()


class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(8)


def warm_up(_):
    scene.decode(scene.SECONDS)


def loader_starts():
    """Rank 1's loader worker builds its index for long before it has a first sample."""
    slow = warm_up if dist.get_rank() == 1 else None
    for batch in DataLoader(Samples(), batch_size=2, num_workers=1, worker_init_fn=slow):
        dist.all_reduce(batch)


def own_pace():
    """Two groups go on at paces of their own, and meet at the end."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = dist.get_rank() // 2
    for _ in range(3):
        if mine == 1:
            scene.decode(scene.SECONDS / 3)
        dist.all_reduce(torch.rand(8), group=pairs[mine])
    dist.barrier()


def validation():
    """Rank 0 evaluates a DDP model alone with a loader of its own; the others wait in broadcast."""
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    model(torch.rand(4, 8)).sum().backward()
    accuracy = torch.zeros(1)
    if dist.get_rank() == 0:
        until = time.monotonic() + scene.SECONDS
        while time.monotonic() < until:
            for batch in DataLoader(Samples(), batch_size=2):
                accuracy += model.module(batch).mean().item()
    dist.broadcast(accuracy, src=0)


def short():
    """Nothing takes long."""
    steps(200)


def main():
    dist.init_process_group("gloo")
    globals()[{"subprocess": "subprocess_"}.get(sys.argv[1], sys.argv[1])]()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
