"""Keys of torch's store, read as a client reads them; and what is no store."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ddplaunch.agent.outside import debug_server

STORE = """
import sys
from torch.distributed import PrefixStore, TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
PrefixStore("debug_server", store).set("rank1", "http://n1:4711")
print(store.port, flush=True)
sys.stdin.read()
print(store.num_keys(), flush=True)
"""


@contextmanager
def listener(says: bytes) -> Iterator[int]:
    """A port whose listener says so to its first client, and nothing after that."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        link, _ = server.accept()
        with link, suppress(OSError):  # it may be left in the middle of a word
            link.sendall(says)
            while link.recv(4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        thread.join()
        server.close()


@pytest.mark.parametrize(
    "says", [b"", b"\0", b"\0" + (2**40).to_bytes(8, sys.byteorder), b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
def test_what_is_no_store_is_left_in_time(says: bytes) -> None:
    with listener(says) as port:
        began = time.monotonic()
        assert {} == debug_server.read_keys("127.0.0.1", port, ["debug_server/rank0"], began + 0.3)
        assert time.monotonic() - began < 5


def test_where_nothing_listens_there_is_no_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert {} == debug_server.read_keys("127.0.0.1", port, ["key"], time.monotonic() + 1)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_reading_the_keys_of_a_real_store_waits_for_none_and_makes_none() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        keys = ["debug_server/rank0", "debug_server/rank1", "debug_server/rank2"]
        found = debug_server.read_keys("127.0.0.1", port, keys, time.monotonic() + 20)
        process.stdin.close()
        left = int(process.stdout.readline())

    assert {"debug_server/rank1": "http://n1:4711"} == found
    assert left <= 2  # torch counts one of its own
