"""Rank 1 does what its argument names before init_process_group, where the others wait for it."""

import fcntl
import os
import socket
import subprocess
import sys
import time

import scene
import torch.distributed as dist


def waits_for_lock():
    """A process that was left behind holds the lock of the cache."""
    holder = subprocess.Popen(["flock", os.path.join(scene.FOLDER, "cache.lock"), "sleep", "3600"])
    time.sleep(1)
    scene.stops()
    with open(os.path.join(scene.FOLDER, "cache.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    holder.wait()


def downloads():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    scene.stops()
    client.recv(1)


def runs_command():
    scene.stops()
    subprocess.run(["sleep", "3600"], check=True)


def leaves():
    scene.stops()
    sys.exit(0)


def killed():
    scene.stops()
    os.kill(os.getpid(), 9)


def stopped():
    scene.stops()
    os.kill(os.getpid(), 19)


def import_fails():
    scene.stops()
    import no_such_kernels  # noqa: F401


def prepares_long():
    scene.decode(scene.SECONDS)


def main():
    if os.environ["RANK"] == "1":
        globals()[sys.argv[1]]()
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
