"""Answers of NCCL's RAS that were recorded on machines with GPUs, and a server that gives them.

Without a GPU NCCL makes no communicator, nor a RAS thread. Each file begins with its source; those that begin
with `own` are of jobs of our own.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

RECORDED = Path(__file__).parent / "evidence" / "recorded" / "ras"


def recorded(name: str) -> str:
    """The answer, without the lines about its source."""
    lines = (RECORDED / name).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# "))


def reply(name: str) -> bytes:
    """The answer as it comes: NCCL confirms both settings, or refuses JSON where it does not know it."""
    second = "OK" if name.endswith(".json") else "ERROR: Unknown command set format json"
    return f"OK\n{second}\n{recorded(name)}".encode()


@contextlib.contextmanager
def serving(answer: bytes, ends: bool = True) -> Iterator[tuple[int, list[bytes]]]:
    """A server that waits for the last command and answers; yields its port, and what it was asked."""
    asked: list[bytes] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    said = b""
                    while b"verbose status\n" not in said:
                        said += connection.recv(4096)
                    asked.append(said)
                    connection.sendall(answer)
                    if not ends:
                        over.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], asked
        finally:
            over.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()
