"""Asks torch's debug server, if the program has called torch.distributed.debug.start_debug_server.

Then each rank answers HTTP on a port of its own, with its Python stacks and with its flight recorder. That
takes no right to trace. The port is in the store where the ranks meet. No other port of a rank is asked,
because whatever listens there may not cope with it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
import time
import urllib.parse
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional, TypeVar

from ddplaunch.agent.contract import Stack
from ddplaunch.agent.evidence import stacks
from ddplaunch.agent.outside import dump_files
from ddplaunch.agent.system import proc, tcp

_WORKER = "pt_workerserver"
"""torch's name for the server's threads."""
_KEY = "debug_server/rank{}"
_STORE = 2.0
_ANSWER = 1.0
"""Seconds. To write the stacks, the server needs the GIL. A rank that is stopped does not answer at all."""
_MOST = 64 << 20
_AT_ONCE = 8
_RECORDERS = {"gloo": "fr_trace_json", "nccl": "dump_nccl_trace_json"}
Answer = TypeVar("Answer")


class DebugServers:
    """The servers of those ranks on this machine that have one."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        """`ranks`: their numbers by pid."""
        self._ports = _ports({pid: number for pid, number in ranks.items() if _is_served(pid)})
        self._worlds = {
            pid: dump_files.world_ranks(proc.environment(pid).get("WORLD_SIZE", "")) for pid in self._ports
        }

    def stacks(self, pids: Collection[int], deadline: float) -> dict[int, list[Stack]]:
        """Return the stacks of those that answer by `deadline` (time.monotonic()).

        A rank whose GIL is held will move from then on, because the server asks for the GIL again and again.
        """
        return self._ask(pids, lambda pid: _stacks(self._ports[pid], deadline))

    def answers(self, pids: Collection[int], deadline: float) -> dict[int, dict[str, Any]]:
        """Return the flight recorders of those that answer, in the form in which the hook gives them."""
        return self._ask(pids, lambda pid: _recorders(self._ports[pid], self._worlds[pid], deadline))

    def _ask(self, pids: Collection[int], ask: Callable[[int], Optional[Answer]]) -> dict[int, Answer]:
        served = [pid for pid in pids if pid in self._ports]
        if not served:
            return {}
        with ThreadPoolExecutor(min(_AT_ONCE, len(served))) as pool:
            answers = pool.map(ask, served)
            return {pid: answer for pid, answer in zip(served, answers) if answer}


def _is_served(pid: int) -> bool:
    return proc.network(pid) == proc.network(os.getpid()) and _WORKER in proc.thread_names(pid).values()


def _ports(ranks: Mapping[int, int]) -> dict[int, int]:
    """Return the servers' ports by pid, from the ranks' store."""
    by_store: dict[tuple[str, int], dict[int, str]] = {}
    for pid, number in ranks.items():
        environment = proc.environment(pid)
        address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
        if address and port.isdecimal():
            by_store.setdefault((address, int(port)), {})[pid] = _KEY.format(number)
    ports = {}
    for (address, port_of_store), keys in by_store.items():
        urls = read_keys(address, port_of_store, keys.values(), time.monotonic() + _STORE)
        ports.update({pid: _port_of(urls[key]) for pid, key in keys.items() if key in urls})
    listeners = {each.inode: each.port for each in tcp.table() if each.state == tcp.LISTEN} if ports else {}
    # Any process may write to the store, so a port counts only if the rank itself listens there.
    own = {pid: {listeners.get(inode) for inode in proc.socket_inodes(pid)} for pid in ports}
    return {pid: port for pid, port in ports.items() if port in own[pid]}


def _port_of(url: str) -> int:
    try:
        return urllib.parse.urlsplit(url).port or 0
    except ValueError:
        return 0


def _stacks(port: int, deadline: float) -> Optional[list[Stack]]:
    text = _post(port, "dump_traceback", deadline)
    return None if text is None else stacks.from_debug_server(text.decode(errors="replace"))


def _recorders(port: int, everybody: list[int], deadline: float) -> Optional[dict[str, Any]]:
    recorded: dict[str, Any] = {}
    for backend, handler in _RECORDERS.items():
        data = _post(port, handler, deadline)
        if data is None:
            break
        with contextlib.suppress(ValueError):
            recorded[backend] = json.loads(data or b"{}")
    return dump_files.as_answer(recorded, everybody)


def _post(port: int, handler: str, deadline: float) -> Optional[bytes]:
    """Return a handler's answer, empty if it gives none; None if the server is silent."""
    left = min(_ANSWER, deadline - time.monotonic())
    if left <= 0:
        return None
    link = http.client.HTTPConnection("localhost", port, timeout=left)
    try:
        link.request("POST", f"/handler/{handler}")
        answer = link.getresponse()
        data = answer.read(_MOST)
        return data if answer.status == http.HTTPStatus.OK else b""
    except (OSError, http.client.HTTPException):
        return None
    finally:
        link.close()


# --- keys of torch's TCPStore

_VALIDATE, _GET, _CHECK = 0, 3, 5
_MAGIC = 0x3C85F7CE
_READY = 0
_LONGEST = 4096
"""Bytes in a value that we accept: whatever listens there may not be a store."""


def read_keys(address: str, port: int, keys: Iterable[str], until: float) -> dict[str, str]:
    """Return those of the keys that are there, by `until` (time.monotonic()); none if no store answers."""
    values = {}
    try:
        with socket.create_connection((address, port), _left(until)) as link:
            link.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))
            for key in keys:
                link.settimeout(_left(until))
                # The store would make us wait for a key that is not there.
                link.sendall(struct.pack("=BQ", _CHECK, 1) + _text(key))
                if _exactly(link, 1)[0] != _READY:
                    continue
                link.sendall(struct.pack("=B", _GET) + _text(key))
                (length,) = struct.unpack("=Q", _exactly(link, 8))
                if length > _LONGEST:
                    break
                values[key] = _exactly(link, length).decode(errors="replace")
    except OSError:
        pass
    return values


def _left(until: float) -> float:
    return max(0.01, until - time.monotonic())


def _text(key: str) -> bytes:
    data = f"/{key}".encode()  # torch's client stores each key like this
    return struct.pack("=Q", len(data)) + data


def _exactly(link: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = link.recv(length - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data
