"""Strangers at the hub's door: real connections to a real server, which knows the key and they do not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import mutate
from tests.fuzz.target import Target

from ddplaunch.agent.contract import VERSION, JobPlan
from ddplaunch.agent.hub.hub import ControlHandler
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Server
from ddplaunch.agent.transport.protocol import HELLO_LIMIT, Channel, Seal

_KEY = b"the job's key"
_WAIT = 5.0
_RESET = struct.pack("ii", 1, 0)
_ANSWER = 65536


class Stranger(Target):
    """Greetings that are broken, too long, cut, or sealed with another key; and first messages likewise."""

    def __init__(self, folder: Path) -> None:
        self._record = JobRecord(JobPlan("digits", 2, 1, [], []), str(folder), 0)
        self._log: list[str] = []
        handler = ControlHandler(self._record, ())
        self._server = Server(_KEY, 0, [handler], self._log.append, nodes=2, connections=200)
        listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = listener.getsockname()[1]
        self._over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener)), daemon=True)
        self._thread.start()

    def make(self, random: Random) -> Any:
        """The key, what is said after the greeting, and how it is cut."""
        hello = {"ddplaunch": VERSION, "nonce": "0" * 32}
        message = {"kind": random.choice(("status", "stop")), "body": {"why": "x"}}
        changed = [self._changed(random, each) for each in (hello, message)]
        return {
            "key": random.choice(("the job's key", "another")),
            "sealed": [random.random() < 0.8, random.random() < 0.8],
            "said": changed,
            "more": random.choice(("", "", "x" * HELLO_LIMIT, "\n" * 100, "\0")),
            "cut": random.choice((0, 0, 1, 30, 400)),
        }

    def _changed(self, random: Random, given: Any) -> str:
        if random.random() < 0.5:
            return mutate.text(random, json.dumps(given), ())
        return json.dumps(mutate.tree(random, given) if random.random() < 0.8 else given)

    def feed(self, given: Any) -> None:
        self._log.clear()
        with socket.create_connection(("127.0.0.1", self._port), _WAIT) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # no port stays taken
            with contextlib.suppress(ConnectionError):
                self._talk(connection, given)
        self._still_serves()
        text = "\n".join(self._log)
        assert "Traceback" not in text, text[-2000:]

    def close(self) -> None:
        self._over = True
        self._thread.join(_WAIT)
        self._record.close()

    async def _serve(self, listener: socket.socket) -> None:
        with listener:
            await self._server.serve(listener, lambda: self._over)
            await self._server.drain(0.1)

    def _talk(self, connection: socket.socket, given: Any) -> None:
        greeting = json.loads(connection.recv(_ANSWER))
        seal = Seal(given["key"].encode(), 0, server=False)
        seal.nonces = greeting["nonce"].encode()
        data = b""
        for each, sealed in zip(given["said"], given["sealed"], strict=True):
            raw = each.encode("utf-8", "surrogatepass")
            data += seal.seal_text(raw) if sealed else raw + b"\n"
            seal.nonces += b" " + b"0" * 32
        data += given["more"].encode()
        cut = given["cut"] or len(data)
        connection.sendall(data[:cut])
        connection.sendall(data[cut:])
        connection.settimeout(0.02)
        with contextlib.suppress(TimeoutError):  # the server waits for more, as it may for some seconds
            connection.recv(_ANSWER)

    def _still_serves(self) -> None:
        channel = Channel.connect("127.0.0.1", self._port, _KEY, 0, time.monotonic() + _WAIT)
        try:
            channel.send("status", {})
            answer = channel.receive(_WAIT)
            assert answer is not None
            assert answer[0] == "status"
        finally:
            channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            channel.close()
