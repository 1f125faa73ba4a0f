"""Reads the flight recorders that ranks have written to files, where their environment says: TORCH_FR_DUMP_….

torch writes one when a call of NCCL takes too long; a program may at any time. A file says nothing about what
the rank did later: it counts only if the rank's main thread has not run since it was begun.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Optional

from ddplaunch.agent.evidence import source_file
from ddplaunch.agent.outside import recorders
from ddplaunch.agent.system import proc

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
            everybody = recorders.world(environment.get("WORLD_SIZE", ""))
            answer = recorders.answer(dict.fromkeys(_BACKENDS, dump), everybody) if dump else None
            if answer is not None:
                yield pid, answer


def _load(pid: int, path: str) -> Optional[dict[str, Any]]:
    """Return the rank's own file of the time since it last ran, in the form of torch's JSON."""
    now, slept = time.time(), proc.off_cpu_for(pid)
    try:
        file = source_file.opened(path, _LARGEST, now)
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
