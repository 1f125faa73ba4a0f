"""Reads flight recorders that ranks have written to the files that their environment names: TORCH_FR_DUMP_….

torch writes one when an NCCL call takes too long; a program may do so at any time. A file says nothing about
what the rank did later, so it counts only if the rank's main thread has not run since the file was begun.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Optional

from ddplaunch.agent.system import files, proc

_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_BACKENDS = ("gloo", "nccl")
_LARGEST = 32 << 20
"""Bytes. The recorders of 2,000 calls with their stacks take a few megabytes."""
_WRITES = 0.5
"""Seconds that torch may take to read its recorder and write the file."""


def answers(ranks: Mapping[int, int], pids: Collection[int], deadline: float) -> dict[int, dict[str, Any]]:
    """Return what is recorded, by pid, in the form of a hook's answer. `ranks`: their numbers by pid."""
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
    """Return the rank's own file from the time since it last ran, in the form of torch's JSON."""
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
    """Loads plain data. This is the unpickler in Python: the one in C may take gigabytes for a few crafted
    bytes.
    """

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
    """Whether its group has sends or receives over Gloo. These are counted but not listed.

    Then a rank that is behind the others may be waiting for one of them, and a file has no stack to show it.
    """
    is_gloo = str(entry.get("profiling_name", "")).startswith("gloo:")
    return is_gloo and entry.get("op_id") != entry.get("collective_seq_id")


_EVERYBODY = "default_pg"
_DIGITS = 6
"""Digits in the largest world size that we accept."""


def world_ranks(size: str) -> list[int]:
    """Return all ranks of a world; none if its size is not known."""
    return [*range(int(size))] if size.isdecimal() and len(size) <= _DIGITS else []


def as_answer(recorded: Mapping[str, Any], everybody: list[int]) -> Optional[dict[str, Any]]:
    """Return the answer of a rank; None if nothing is recorded. `everybody`: all ranks, if known.

    `recorded`: dumps by backend. A dump in another form is left out: it is some other program's, or torch's.
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
    """Return the backend's own entries: in some versions of torch the general recorder has other backends'
    too.
    """
    return [each for each in dump.get("entries", []) if str(each.get("profiling_name")).startswith(backend)]


def _groups(dump: dict[str, Any], everybody: list[int]) -> dict[str, tuple[list[int], str]]:
    """Return members and description by name, if they are known: Gloo's recorder names no members."""
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
    """Return the dump without groups whose members are unknown: a rank without a call may not be a member."""
    entries = [each for each in dump["entries"] if (*each.get("process_group", []), "")[0] in groups]
    numbers = {str(each.get("pg_id", 0)) for each in entries}
    status = {name: its for name, its in dump.get("pg_status", {}).items() if name in numbers}
    return {**dump, "entries": entries, "pg_status": status}
