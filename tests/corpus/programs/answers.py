"""Ranks that wait for an answer, or call in an order that chance has made."""

import asyncio
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import scene
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

DONE = -1.0


def leaves_out():
    """The server drops a request that it does not like, without an answer."""
    message = torch.zeros(2)
    if dist.get_rank() == 0:
        clients = set(range(1, dist.get_world_size()))
        while clients:
            source = dist.recv(message)
            if message[0] == DONE:
                clients.discard(source)
                continue
            if not torch.isfinite(message[1]):
                continue
            dist.send(message, source)
    else:
        for step in range(40):
            value = float("nan") if (dist.get_rank(), step) == (2, 25) else 1.0
            if value != 1.0:
                scene.stops()
            dist.send(torch.tensor([step, value]), 0)
            dist.recv(message, 0)
            time.sleep(0.02)
        dist.send(torch.tensor([DONE, 0.0]), 0)
    dist.barrier()


def asks():
    """Rank 1 asks rank 0 over a socket of its own, and rank 0 answers between its collectives alone."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    if rank == 0:
        server = socket.create_server(("127.0.0.1", 0))
        store.set("port", str(server.getsockname()[1]))
        line = server.accept()[0]
        line.setblocking(False)
    elif rank == 1:
        line = socket.create_connection(("127.0.0.1", int(store.get("port"))))
    for step in range(1000):
        if rank == 0:
            try:
                line.recv(64)
                line.sendall(b"lease\n")
            except BlockingIOError:
                pass
        if rank == 1 and step % 10 == 5 and step > 20:
            scene.stops()
            line.sendall(b"more\n")
            line.recv(64)
        dist.all_reduce(torch.ones(4))
        time.sleep(0.02)


def in_tasks():
    """Two tasks of asyncio each call in a group of their own; on rank 1 one of them is late, and waits."""
    groups = [dist.new_group(), dist.new_group()]
    pool = ThreadPoolExecutor(1)

    async def mean(group, seconds):
        await asyncio.sleep(seconds)
        call = asyncio.get_running_loop().run_in_executor
        await call(pool, lambda: dist.all_reduce(torch.ones(4), group=group))

    async def run():
        for step in range(1000):
            late = dist.get_rank() == 1 and step == 30
            if late:
                scene.stops()
            await asyncio.gather(mean(groups[0], 0.2 if late else 0.01), mean(groups[1], 0.05))

    asyncio.run(run())


def returns():
    """Rank 3's tokens are all its own, so it leaves out the exchange in its row of the mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "expert"))

    def exchange(tokens):
        if bool((tokens == dist.get_rank()).all()):
            return tokens
        out = torch.empty_like(tokens)
        dist.all_to_all_single(out, tokens, group=mesh.get_group("expert"))
        return out

    for step in range(1000):
        mine = dist.get_rank() == 3 and step >= 30
        if mine:
            scene.stops()
        exchange(torch.full((4,), 3 if mine else 9))
        dist.all_reduce(torch.ones(4), group=mesh.get_group("data"))
        time.sleep(0.02)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
