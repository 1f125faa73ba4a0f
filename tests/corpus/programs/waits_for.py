"""Rank 1 waits in its own code for something outside of it: `waits_for.py KIND`."""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import scene
import torch
import torch.distributed as dist

SERVICE = """
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
client, _ = server.accept()
time.sleep(3600)
"""
LIBRARY = ctypes.CDLL(None)
MUTEX = (ctypes.c_char * 64)()


def hello():
    """A tracker's service has taken the connection and does not answer."""
    path = os.path.join(scene.FOLDER, "tracker")
    subprocess.Popen([sys.executable, "-c", SERVICE, path])
    client = socket.socket(socket.AF_UNIX)
    while client.connect_ex(path):
        time.sleep(0.1)
    scene.stops()
    client.sendall(b"hello")
    client.recv(100)


def full_pipe():
    """A child writes more than a pipe holds, and nobody reads."""
    scene.stops()
    subprocess.Popen([sys.executable, "-c", "print('sample ok ' * 100000)"], stdout=subprocess.PIPE).wait()


ECHO = "import sys\nfor line in sys.stdin:\n    print(line.lower(), flush=True)"


def both_pipes():
    """The rank writes all of its lines before it reads one, and the child answers each."""
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", ECHO], stdin=pipe, stdout=pipe, text=True)
    scene.stops()
    for _ in range(20000):
        child.stdin.write("A LINE OF THE DICTIONARY\n")


def command():
    """A copy to another place takes for ever."""
    scene.stops()
    subprocess.run(["sh", "-c", "cat /dev/zero | sleep 3600; true"], check=True)


def features():
    """A server of the rank's own has taken a request, and its thread is asleep."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    served, _ = server.accept()
    threading.Thread(target=lambda: (served.recv(4), time.sleep(3600)), daemon=True).start()
    scene.stops()
    client.sendall(b"give")
    client.recv(4)


def named_pipe():
    """The producer of the next shard was never started."""
    scene.stops()
    with open(scene.storage(), "rb") as file:
        file.read()


def tokenize(line):
    if line == "poison":
        scene.stops()
        os.kill(os.getpid(), signal.SIGKILL)
    return len(line)


def pool():
    """multiprocessing.Pool starts another worker for one that was killed, and forgets its task."""
    with multiprocessing.get_context("fork").Pool(2) as workers:
        workers.map(tokenize, ["warm up"] * 8)
        time.sleep(2.5)  # its workers live for some seconds, as those of real pools do
        workers.map(tokenize, ["line", "poison", "line"])


def native_lock():
    """A thread holds a C library's mutex for ever."""
    LIBRARY.pthread_mutex_init(MUTEX, None)
    taken = threading.Event()
    threading.Thread(target=hold, args=(taken, 3600), name="decoder", daemon=True).start()
    taken.wait()
    scene.stops()
    LIBRARY.pthread_mutex_lock(MUTEX)


def hold(taken, seconds):
    LIBRARY.pthread_mutex_lock(MUTEX)
    taken.set()
    time.sleep(seconds)


def main():
    dist.init_process_group("gloo")
    gradient = torch.rand(8)
    for step in range(30):
        if step == 12 and dist.get_rank() == 1:
            globals()[sys.argv[1]]()
        dist.all_reduce(gradient)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
