"""What torch tells of a rank that has no hook: by its debug server, or in a file with its flight recorder.

The server is there where the program has called torch.distributed.debug.start_debug_server. Then each rank
answers HTTP on a port of its own: with the stacks of its Python and with its flight recorder.
That takes no right to trace. The port stands in the store where the ranks meet. No other port of a rank is
asked: what listens there may not bear it.

Files lie where the environment says: TORCH_FR_DUMP_…. torch writes one when a call of NCCL takes too long; a
program may at any time. A file says nothing about what the rank did later: it counts only if the rank's main
thread has not run since it was begun.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pickle
import socket
import struct
import time
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional, TypeVar

from ddplaunch.agent.contract import Stack
from ddplaunch.agent.evidence import stacks
from ddplaunch.agent.system import files, ports, proc

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
        self._worlds = {pid: world_ranks(proc.environment(pid).get("WORLD_SIZE", "")) for pid in self._ports}

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
            return {pid: answer for pid, answer in zip(served, pool.map(ask, served)) if answer}


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
    found = {}
    for (address, port_of_store), keys in by_store.items():
        urls = read_keys(address, port_of_store, keys.values(), time.monotonic() + _STORE)
        found.update({pid: _port_of(urls[key]) for pid, key in keys.items() if key in urls})
    listeners = (
        {each.inode: each.port for each in ports.table() if each.state == ports.LISTEN} if found else {}
    )
    # Any process may write into the store: a port counts only if the rank itself listens there.
    own = {pid: {listeners.get(inode) for inode in proc.socket_inodes(pid)} for pid in found}
    return {pid: port for pid, port in found.items() if port in own[pid]}


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
    return as_answer(recorded, everybody)


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


# --- dumps in files

_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_BACKENDS = ("gloo", "nccl")
_LARGEST = 32 << 20
"""Bytes. Those of 2,000 calls with their stacks are a few megabytes."""
_WRITES = 0.5
"""Seconds that torch may take to read its recorder and to write the file."""


def answers(ranks: Mapping[int, int], pids: Collection[int], deadline: float) -> dict[int, dict[str, Any]]:
    """Return what is recorded by pid, as a hook would answer. `ranks`: their numbers by pid."""
    return dict(_answers(ranks, pids, deadline))


def _answers(
    ranks: Mapping[int, int], pids: Collection[int], deadline: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    for pid in pids:
        environment = proc.environment(pid)
        prefix = next((environment[name] for name in _PREFIXES if environment.get(name)), "")
        if prefix and pid in ranks and time.monotonic() < deadline:
            dump = _load(pid, proc.path_from_here(pid, f"{prefix}{ranks[pid]}"))
            everybody = world_ranks(environment.get("WORLD_SIZE", ""))
            answer = as_answer(dict.fromkeys(_BACKENDS, dump), everybody) if dump else None
            if answer is not None:
                yield pid, answer


def _load(pid: int, path: str) -> Optional[dict[str, Any]]:
    """Return the rank's own file of the time since it last ran, in the form of torch's JSON."""
    now, slept = time.time(), proc.off_cpu_for(pid)
    try:
        file = files.open_unchanged(path, _LARGEST, now)
        if file is None or slept is None:
            return None
        with file:
            facts = os.fstat(file.fileno())
            is_own = facts.st_uid == os.stat(f"/proc/{pid}").st_uid
            if not is_own or facts.st_mtime - _WRITES < now - slept:
                return None
            return _as_json(_Data(file).load())
    except Exception:  # a broken or hostile file makes the unpickler raise anything
        return None


class _Data(pickle._Unpickler):  # noqa: SLF001 - see below
    """Loads plain data. It is the one in Python: that in C takes gigabytes over a few bytes made for it."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump has no {module}.{name}")


def _as_json(dump: dict[str, Any]) -> dict[str, Any]:
    unlisted = {each.get("pg_id") for each in dump["entries"] if _follows_message(each)}
    dump["entries"] = [each for each in dump["entries"] if each.get("pg_id") not in unlisted]
    for entry in dump["entries"]:
        entry["frames"] = [
            [each["name"], each["filename"], each["line"]] for each in entry.get("frames") or []
        ]
    return dump


def _follows_message(entry: dict[str, Any]) -> bool:
    """Whether its group has sends or receives of Gloo. They are counted, and not listed.

    Then a rank that is behind the others may wait for one of them, and no stack comes with a file.
    """
    is_gloo = str(entry.get("profiling_name", "")).startswith("gloo:")
    return is_gloo and entry.get("op_id") != entry.get("collective_seq_id")


_EVERYBODY = "default_pg"
_DIGITS = 6
"""Digits of the largest world size that is believed."""


def world_ranks(size: str) -> list[int]:
    """Return all ranks of a world; none where its size is not known."""
    return [*range(int(size))] if size.isdecimal() and len(size) <= _DIGITS else []


def as_answer(recorded: Mapping[str, Any], everybody: list[int]) -> Optional[dict[str, Any]]:
    """Return the answer of a rank; None where nothing is recorded. `everybody`: all ranks, where known.

    `recorded`: dumps by backend. One that is of another form is left out: some other program's, or torch's.
    """
    dumps: dict[str, dict[str, Any]] = {}
    groups: dict[str, tuple[list[int], str]] = {}
    for backend, dump in recorded.items():
        try:
            dump = {**dump, "entries": _entries(dump, backend)}
            groups.update(_groups(dump, everybody))
        except (ValueError, TypeError, AttributeError):
            continue
        if dump["entries"]:
            dumps[backend] = dump
    if not dumps:
        return None
    dumps = {backend: _of_groups(dump, groups) for backend, dump in dumps.items()}
    return {"recorders": dumps, "backend": list(dumps)[-1], "initialized": True, "groups": groups}


def _entries(dump: Mapping[str, Any], backend: str) -> list[dict[str, Any]]:
    """Return the backend's own: the general recorder has those of others in some versions of torch."""
    return [each for each in dump.get("entries", []) if str(each.get("profiling_name")).startswith(backend)]


def _groups(dump: dict[str, Any], everybody: list[int]) -> dict[str, tuple[list[int], str]]:
    """Return members and description by name, where they are known: Gloo's recorder names no members."""
    groups = {}
    for group in dump.get("pg_config", {}).values():
        name, ranks = str(group.get("name", "")), str(group.get("ranks", "")).strip("[]")
        if name and ranks:
            groups[name] = ([int(rank) for rank in ranks.split(",")], str(group.get("desc", "")))
    for entry in dump["entries"]:
        name, description = (*entry.get("process_group", []), "", "")[:2]
        if description == _EVERYBODY and everybody:
            groups.setdefault(name, (everybody, description))
    return groups


def _of_groups(dump: dict[str, Any], groups: Collection[str]) -> dict[str, Any]:
    """Return the dump without groups of unknown members: a rank without a call may not be a member."""
    entries = [each for each in dump["entries"] if (*each.get("process_group", []), "")[0] in groups]
    numbers = {str(each.get("pg_id", 0)) for each in entries}
    status = {name: its for name, its in dump.get("pg_status", {}).items() if name in numbers}
    return {**dump, "entries": entries, "pg_status": status}
