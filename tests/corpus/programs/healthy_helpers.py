"""Helpers idle beside ranks that work, or work while ranks wait for them: `healthy_helpers.py KIND`."""

import concurrent.futures
import http.server
import multiprocessing
import queue
import subprocess
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist


def idle():
    """Each rank has a server, a pool and a thread without work, while rank 0 evaluates."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        pool.submit(int, 3).result()
        if dist.get_rank() == 0:
            scene.decode(scene.SECONDS)
        _train()
    server.shutdown()


def tokenizes():
    """Rank 0 waits for its pool, whose only worker computes, and the others wait for rank 0."""
    if dist.get_rank() == 0:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.map(scene.decode, [0.5] * int(2 * scene.SECONDS))
    _train()


def compiles():
    """Rank 1 runs many short programs one after the other, as a compiler does."""
    _train()
    until = time.monotonic() + scene.SECONDS
    while dist.get_rank() == 1 and time.monotonic() < until:
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"], check=True)
    _train()


def _train():
    gradient = torch.rand(8)
    for _ in range(20):
        dist.all_reduce(gradient)
        time.sleep(0.01)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
