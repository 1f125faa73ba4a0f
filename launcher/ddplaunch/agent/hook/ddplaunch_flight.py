"""Reads torch's flight recorder inside the process: counters each second, everything on demand.

Its JSON has no call sites, and goes out as it is. Its pickle has them, and is trusted here alone, where it
was made. But torch imports its compiler, for seconds, to name them: it is asked for them only where the
program has imported that itself. Elsewhere the hook's ring knows the lines of what the program called.
"""

# ruff: noqa: SLF001 - runs on Python 3.8 in somebody else's program

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES_FRAMES = "torch._inductor.codecache"
_ENTRIES = 64  # of each group, the newest
_FRAMES = 6  # of each entry, the innermost outside torch


def recorders(everything: bool) -> dict[str, bytes]:
    """Backend -> JSON, of the backends that this process has groups of; with Gloo since torch 2.8."""
    native: Any = sys.modules.get("torch._C._distributed_c10d")
    world: Any = sys.modules["torch.distributed.distributed_c10d"]._world
    if native is None:
        return {}
    kinds = " ".join(str(kind) for kind, _ in world.pg_map.values())
    found = {}
    for backend in ("gloo", "nccl"):
        if backend in kinds:
            dump = _with_frames(native, backend) if everything and _NAMES_FRAMES in sys.modules else b""
            dump = dump or _json(native, backend, everything)
            if dump:
                found[backend] = dump
    return found


def _json(native: Any, backend: str, everything: bool) -> bytes:
    return _fullest(native, "_json", backend, (everything, False))


def _with_frames(native: Any, backend: str) -> bytes:
    """Return the dump as JSON with `frames` [[name, file, line], ...]; empty where torch gives no frames."""
    import json
    import pickle

    try:
        dump = pickle.loads(_fullest(native, "", backend, (True, True, False)))  # noqa: S301 - our own
        torch = os.path.dirname(os.path.abspath(str(sys.modules["torch"].__file__)))
        kept: dict[Any, int] = {}
        entries: list[dict[str, Any]] = []
        for entry in reversed(dump.get("entries", [])):
            group = entry.get("pg_id")
            kept[group] = kept.get(group, 0) + 1
            if kept[group] <= _ENTRIES:
                entries.insert(0, dict(entry, frames=_outside(entry.get("frames", []), torch)))
        return json.dumps(dict(dump, entries=entries), default=str).encode()
    except Exception:
        return b""


def _outside(frames: list[dict[str, Any]], torch: str) -> list[list[Any]]:
    """Without torch's own frames and those of the hook."""
    own = (torch + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
    found = [[each["name"], each["filename"], each["line"]] for each in frames]
    return [each for each in found if not str(each[1]).startswith(own)][:_FRAMES]


def _fullest(native: Any, suffix: str, backend: str, options: tuple[bool, ...]) -> bytes:
    """Return the largest of the dumps that this torch has for the backend.

    NCCL has had a function of its own always; since torch 2.15 what it says depends on which NCCL is used.
    """
    dumps = [b""]
    general = getattr(native, "_dump_fr_trace" + suffix, None)
    if general is not None:
        try:
            dumps.append(general(*options, backend))
        except TypeError:  # torch < 2.15: one recorder for all
            dumps.append(general(*options))
    if backend == "nccl":
        special = getattr(native, "_dump_nccl_trace" + suffix, None)
        if special is not None:
            dumps.append(special(*options))
    return max(dumps, key=len)
