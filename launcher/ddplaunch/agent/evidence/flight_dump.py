"""Flight recorders as whole files, for torch's own tools: `torchfrtrace` reads a pickle for each rank.

They are made from the recorder's JSON, which the hook sends anyway: so the rank does nothing more, and no
pickle is loaded. JSON has what the pickle has, but for tuples and None, which are put back here.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Callable

from ddplaunch.agent.contract import Dump
from ddplaunch.agent.contract.bundle_file import dump_of

_PROTOCOL = 2  # as torch's own
_TIMES = ("time_discovered_started_ns", "time_discovered_completed_ns")


class Dumps:
    """The dumps of one round. `room`: bytes for all of them, packed; `hide` takes secrets out of data."""

    def __init__(self, room: int, hide: Callable[[Any], Any]) -> None:
        self.made: list[Dump] = []
        self.left_out = 0
        self._room = room
        self._hide = hide

    def add(self, rank: int, answer: dict[str, Any]) -> None:
        """Add the recorders in a hook's answer."""
        for backend, dump in answer.get("recorders", {}).items():
            if self._room > 0:
                groups = self._hide(answer.get("groups", {}))  # their descriptions are the program's
                made = dump_of(rank, backend, as_pickle(self._hide(dump), groups))
                self._room -= len(made.packed) * 3 // 4
                if self._room >= 0:
                    self.made.append(made)
                    continue
            self.left_out += 1


def as_pickle(dump: dict[str, Any], groups: dict[str, Any]) -> bytes:
    """Return the dump as torch writes it. `groups`: [global ranks, description] by name.

    Up to torch 2.15 the recorder of Gloo lists one group without a name, and torch's tool fails to find those
    of the entries: then the list is made from `groups`.
    """
    entries = [_entry(entry) for entry in dump.get("entries", [])]
    config = dump.get("pg_config", {})
    if any(entry["process_group"][0] not in config for entry in entries):
        named = {name: (ranks, text) for name, (ranks, text) in groups.items()}
        for name, text in (entry["process_group"] for entry in entries):
            named.setdefault(name, ([], text))
        config = {
            name: {"name": name, "desc": text, "ranks": str(ranks)} for name, (ranks, text) in named.items()
        }
    status = {
        name: {key: int(value) for key, value in each.items()}
        for name, each in dump.get("pg_status", {}).items()
    }
    made = io.BytesIO()
    pickler = pickle.Pickler(made, protocol=_PROTOCOL)
    pickler.fast = (
        True  # without numbers for objects that come again, as torch writes it: it packs far better
    )
    pickler.dump(dict(dump, entries=entries, pg_config=config, pg_status=status))
    return made.getvalue()


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        **entry,
        **{key: entry[key] or None for key in _TIMES if key in entry},
        "process_group": tuple((*map(str, entry.get("process_group", [])), "", "")[:2]),
        "frames": [
            {"name": name, "filename": file, "line": line} for name, file, line in entry.get("frames", [])
        ],
    }
