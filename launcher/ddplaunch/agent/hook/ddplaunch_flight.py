"""Reads torch's flight recorder inside the process: counters each second, everything on demand.

The recorder's JSON has no call sites, and is sent unchanged. Its pickle has them, and is loaded only here, in
the process that made it. But to name call sites torch imports its compiler, which takes seconds. So the hook
asks for them only if the program itself has imported the compiler. Otherwise the lines of the program's calls
come from the hook's ring.
"""

# ruff: noqa: SLF001 - runs on Python 3.8 in the user's program

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES_FRAMES = "torch._inductor.codecache"
_ENTRIES = 64  # the newest of each group, which get frames
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 6  # of each entry, the innermost outside torch


def recorders(word: bytes) -> dict[str, bytes]:
    """Return the recorder's JSON for each backend of this process's groups; for Gloo since torch 2.8.

    Entries are included for `dump`, and without lines for `steps`.
    """
    native: Any = sys.modules.get("torch._C._distributed_c10d")
    world: Any = sys.modules["torch.distributed.distributed_c10d"]._world
    if native is None:
        return {}
    # A group made without a named backend is "undefined" in pg_map, but not in pg_backend_config.
    kinds = " ".join(str(kind) for kind, _ in world.pg_map.values())
    kinds += " ".join(map(str, getattr(world, "pg_backend_config", {}).values()))
    dumps = {}
    for backend in ("gloo", "nccl"):
        if backend in kinds:
            dump = _with_frames(native, backend) if word == b"dump" and _NAMES_FRAMES in sys.modules else b""
            dump = dump or _json(native, backend, word in (b"dump", b"steps"))
            if dump:
                dumps[backend] = dump
    return dumps


def sequences() -> dict[str, Any]:
    """Return `sequences`, and `torch`, its version; nothing without a group that uses Gloo.

    For torch before 2.8, which has no recorder for Gloo. By group: torch's sequence number, which counts
    sends and receives too, then the collectives and the messages that the program has called, None if these
    do not tell how many of torch's numbers are messages. The numbers are the only trace of the calls that
    torch's C++ makes, as for DDP in backward().
    """
    ring: Any = sys.modules["ddplaunch_ring"]
    module: Any = sys.modules["torch.distributed.distributed_c10d"]
    torch: Any = sys.modules["torch"]
    cpu = torch.device("cpu")
    begun = {}
    for group, name in list(module._world.pg_names.items()):
        try:
            backend = group._get_backend(cpu)
            if backend.name() == "gloo":
                made = ring.made(str(name))  # before: what is called in between is not taken for torch's own
                begun[str(name)] = [int(backend._get_sequence_number_for_group()), *made]
        except (AttributeError, RuntimeError):  # it has no backend for the CPU, or does not count
            pass
    return {"sequences": begun, "torch": str(torch.__version__).partition("+")[0]} if begun else {}


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
            group, frames = entry.get("pg_id"), entry.pop("frames", [])
            kept[group] = kept.get(group, 0) + 1
            if kept[group] <= _ENTRIES:
                entry["frames"] = _outside(frames, torch)
            entries.append(entry)
        return json.dumps(dict(dump, entries=entries[::-1]), default=str).encode()
    except Exception:
        return b""


def _outside(frames: list[dict[str, Any]], torch: str) -> list[list[Any]]:
    """Return the frames without torch's own and those of the hook."""
    own = (torch + os.sep, _HERE)
    places = [[each["name"], each["filename"], each["line"]] for each in frames]
    return [each for each in places if not str(each[1]).startswith(own)][:_FRAMES]


def _fullest(native: Any, suffix: str, backend: str, options: tuple[bool, ...]) -> bytes:
    """Return the largest of this torch's dumps for the backend.

    NCCL has always had a function of its own; since torch 2.15 its result depends on the NCCL in use.
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
