"""torch's flight recorder: the groups, how far each is, the last collectives, and whole dumps. Pure.

It reads dumps of torch 2.6 to 2.15, which come from hook/ddplaunch_flight.py. Numbers in JSON are strings.

With Gloo, torch never changes an entry's `state` from "scheduled", or its times from 0: `retired` shows
whether it is done. Point-to-point operations have no entries there, but `pg_status` counts them with the
collectives.

With NCCL they have entries with their own numbers, which `pg_status` mixes with the collectives' numbers. The
newest entry has the state "completed" while its call has not come back, because its events are not recorded
yet.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import re
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Collective, Dump, Frame, Group
from ddplaunch.agent.contract.bundle_file import dump_of

KEPT = 64
"""Collectives of a rank that are sent to the hub. Ranks that are further apart have waited for one another
long before."""
_STEPS = 64
_STEPS_SEEN = 3
_SMALL = 0.01
"""A collective with less than this share of the largest one's elements says nothing about steps."""
_WAY = re.compile(r"(?P<op>\w+) \d+(?:->|<-)(?P<peer>\d+)")
"""'send 0->1', 'recv 1<-0': this rank and its peer, by their ranks in the group."""


def counters(dump: dict[str, Any], as_brief: bool = False) -> dict[str, tuple[int, int]]:
    """Return (last enqueued, last completed) by process group id. torch's -1 for "none yet" is 0 here.

    With Gloo, a slow thread may overwrite a later collective's number with its own, and NCCL's watchdog
    writes both numbers late. So if the dump has entries, they count as well. Without entries, as in each
    second's dump, Gloo's numbers include point-to-point operations and only show progress. `as_brief` numbers
    a dump with entries in the same way, so that two dumps from one moment do not differ.
    """
    done: dict[str, int] = {}
    begun: dict[str, int] = {}
    others: dict[str, int] = {}  # operations with Gloo that are not collectives
    mixed: set[str] = set()  # NCCL's groups with point-to-point operations
    for entry, is_done in _with_ends(dump):
        number, seq = str(entry.get("pg_id", 0)), int(entry.get("collective_seq_id", 0))
        if entry.get("is_p2p"):
            mixed.add(number)
            continue
        operation = _operation(entry)
        if is_done:
            done[number] = max(done.get(number, 0), operation if as_brief else seq)
        if not as_brief:
            others[number] = max(0, operation - seq)
            begun[number] = max(begun.get(number, 0), seq)
    counts = {}
    for name, status in dump.get("pg_status", {}).items():
        enqueued, completed = (
            0 if name in mixed and not as_brief else max(0, int(status.get(key, 0)) - others.get(name, 0))
            for key in ("last_enqueued_collective", "last_completed_collective")
        )
        counts[name] = (max(enqueued, begun.get(name, 0)), max(completed, done.get(name, 0)))
    return counts


def collectives(
    dump: dict[str, Any], members: Optional[dict[str, list[int]]] = None, kept: int = KEPT
) -> list[Collective]:
    """Return `kept` entries, the oldest first: the newest ones, and those around the first that is not done.

    With NCCL a rank may call hundreds more before it waits. `members` is as in `groups`, and makes peers
    global.
    """
    entries = _with_ends(dump)
    first = next((place for place, (_, is_done) in enumerate(entries) if not is_done), len(entries))
    if first < len(entries) - kept // 2:
        start = max(0, first - kept // 4)
        entries = [*entries[start : start + kept - kept // 4], *entries[-(kept // 4) :]]
    return [_collective(entry, is_done, members or {}) for entry, is_done in entries[-kept:]]


def _with_ends(dump: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Return the entries, each with whether it is done. For the newest one, `state` is not believed.

    Calls that NCCL runs as one, such as those of a `batch_isend_irecv`, have no events. Their common entry,
    which comes last and has their number, does.
    """
    entries = dump.get("entries", [])
    last = len(entries) - 1
    done = [
        bool(entry.get("retired")) or (entry.get("state") == "completed" and place < last)
        for place, entry in enumerate(entries)
    ]
    together = {
        _number(entry)
        for entry, is_done in zip(entries, done)
        if is_done and str(entry.get("profiling_name")).endswith("coalesced")
    }
    return [(entry, is_done or _number(entry) in together) for entry, is_done in zip(entries, done)]


def _number(entry: dict[str, Any]) -> tuple[Any, bool, Any]:
    """Return the group, whether it is point-to-point, and the number among the group's entries of that
    sort.
    """
    p2p = bool(entry.get("is_p2p"))
    return entry.get("pg_id"), p2p, entry.get("p2p_seq_id" if p2p else "collective_seq_id")


def newest(answer: dict[str, Any]) -> float:
    """Return when the last call in the dumps of a hook's answer began, since the epoch; 0: there is none."""
    entries = (entry for dump in answer.get("recorders", {}).values() for entry in dump.get("entries", []))
    return max((entry.get("time_created_ns", 0) for entry in entries), default=0) / 1e9


def with_lines(recorded: list[Collective], calls: list[Collective]) -> list[Collective]:
    """Return `recorded`, each entry with the user's line of the call that made it. Both are oldest first.

    A call makes its first entry right after it begins, before its thread begins another call. Later entries,
    which C++ makes by itself, get no line.
    """
    entries = list(recorded)
    for number, call in enumerate(calls):
        if len(recorded) >= KEPT and call.at < recorded[0].at:
            continue  # its own entry may be cut off
        ends = next((each.at for each in calls[number + 1 :] if each.group == call.group), math.inf)
        for place, entry in enumerate(entries):
            if entry.group == call.group and entry.p2p == call.p2p and call.at <= entry.at < ends:
                if not entry.frames and call.op.startswith(entry.op.strip("_").replace("_base", "")):
                    entries[place] = dataclasses.replace(entry, frames=call.frames)
                break
    return entries


def step_times(dump: dict[str, Any]) -> list[float]:
    """Return the seconds from each completed collective to the next of its kind, the newest last."""
    kinds = _kinds(dump)
    times = next((kind for kind in kinds if len(kind) >= _STEPS_SEEN), kinds[0] if kinds else [])
    return [round((after - before) / 1e9, 4) for (_, before), (_, after) in zip(times, times[1:])][-_STEPS:]


def per_step(dump: dict[str, Any]) -> float:
    """Return how many collectives a step has, as `counters(…, as_brief=True)` counts; 0: it is not known."""
    once = next(iter(_kinds(dump)), [])
    return (once[-1][0] - once[0][0]) / (len(once) - 1) if len(once) >= _STEPS_SEEN else 0.0


def _kinds(dump: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """Return each kind of collective's (number, nanoseconds), the rarest first: it comes once in a step.

    Kinds differ in operation and sizes. Small ones are left out, because a loss may be summed every ten
    steps; so are those that no longer come, as at the start. `number` counts the operations of all groups.
    """
    done = [entry for entry, is_done in _with_ends(dump) if is_done and not entry.get("is_p2p")]
    kinds: dict[str, list[tuple[int, int]]] = {}
    sizes: dict[str, int] = {}
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for entry in done:
        kind = f"{entry.get('pg_id')} {entry.get('profiling_name')} {entry.get('input_sizes')}"
        group, number = entry.get("pg_id"), _operation(entry)
        first.setdefault(group, number)
        last[group] = number
        if kind not in sizes:
            sizes[kind] = sum(math.prod(map(int, each)) for each in entry.get("input_sizes", []))
        position = sum(last.values()) - sum(first.values())
        kinds.setdefault(kind, []).append((position, entry.get("time_created_ns", 0)))
    least = max(sizes.values(), default=0) * _SMALL
    half = done[len(done) // 2].get("time_created_ns", 0) if done else 0
    comes = [times for kind, times in kinds.items() if sizes[kind] >= least and times[-1][1] >= half]
    return sorted(comes, key=len)


def groups(
    dump: dict[str, Any],
    members: Optional[dict[str, list[int]]] = None,
    descriptions: Optional[dict[str, str]] = None,
) -> list[Group]:
    """Return all groups by name. `members`: the global ranks of each group, if known; it adds idle groups."""
    names: dict[str, tuple[str, str]] = {}
    for entry in dump.get("entries", []):
        name, description = (*entry.get("process_group", []), "", "")[:2]
        names[str(entry.get("pg_id", name))] = (name, description)
    groups = {}
    for number, (enqueued, completed) in counters(dump).items():
        name, description = names.get(number, (number, ""))
        ranks = (members or {}).get(name, [])
        groups[name] = Group(
            name, ranks, enqueued, completed, description or (descriptions or {}).get(name, "")
        )
    for name, ranks in (members or {}).items():
        groups.setdefault(name, Group(name, ranks, 0, 0, (descriptions or {}).get(name, "")))
    return [groups[name] for name in sorted(groups)]


def _collective(entry: dict[str, Any], is_done: bool, members: dict[str, list[int]]) -> Collective:
    p2p = bool(entry.get("is_p2p"))
    group = str((*entry.get("process_group", []), "")[0])
    name = str(entry.get("profiling_name", ""))
    op, peer = name.partition(":")[2] or name, None
    way = _WAY.fullmatch(op)
    if way:
        op, ranks, place = way["op"], members.get(group, []), int(way["peer"])
        peer = ranks[place] if place < len(ranks) else None
    return Collective(
        group=group,
        seq=int(entry.get("p2p_seq_id" if p2p else "collective_seq_id", 0)),
        op=op,
        sizes=[[int(size) for size in sizes] for sizes in entry.get("input_sizes", [])],
        dtypes=[str(dtype) for dtype in entry.get("input_dtypes", [])],
        done=is_done,
        p2p=p2p,
        at=entry.get("time_created_ns", 0) / 1e9,
        frames=[Frame(str(name), str(file), int(line)) for name, file, line in entry.get("frames", [])],
        peer=peer,
        state="completed" if is_done else _state(entry),
        took=_took(entry) if is_done else None,
    )


def _took(entry: dict[str, Any]) -> Optional[float]:
    """Return the seconds until torch saw that it had completed. torch records this for NCCL's calls."""
    end, begun = (entry.get(f"time_{name}_ns") or 0 for name in ("discovered_completed", "created"))
    return round((end - begun) / 1e9, 6) if end > begun > 0 else None


def _operation(entry: dict[str, Any]) -> int:
    """Return the number that `pg_status` gives it. With Gloo, point-to-point operations count as well."""
    is_gloo = str(entry.get("profiling_name", "")).startswith("gloo:")
    return int(entry.get("op_id" if is_gloo and "op_id" in entry else "collective_seq_id", 0))


def _state(entry: dict[str, Any]) -> str:
    """Return the state of an entry that is not done."""
    state = str(entry.get("state", ""))
    return "scheduled" if state == "completed" else state


# --- whole files, for torch's own tools: `torchfrtrace` reads a pickle for each rank

_PROTOCOL = 2  # as torch's own
_TIMES = ("time_discovered_started_ns", "time_discovered_completed_ns")


class Dumps:
    """The dumps of one round. `room`: bytes for all of them, packed; `hide` takes secrets out of the data."""

    def __init__(self, room: int, hide: Callable[[Any], Any]) -> None:
        self.made: list[Dump] = []
        self.left_out = 0
        self._room = room
        self._hide = hide

    def add(self, rank: int, answer: dict[str, Any]) -> None:
        """Add the recorders from a hook's answer."""
        for backend, dump in answer.get("recorders", {}).items():
            if self._room > 0:
                groups = self._hide(answer.get("groups", {}))  # their descriptions come from the program
                made = dump_of(rank, backend, as_pickle(self._hide(dump), groups))
                self._room -= len(made.packed) * 3 // 4
                if self._room >= 0:
                    self.made.append(made)
                    continue
            self.left_out += 1


def as_pickle(dump: dict[str, Any], groups: dict[str, Any]) -> bytes:
    """Return the dump in the form in which torch writes it. `groups`: [global ranks, description] by name.

    Up to torch 2.15, Gloo's recorder lists one group without a name, and torch's tool does not find the
    groups that the entries name: then the list is made from `groups`.
    """
    entries = [_pickled_entry(entry) for entry in dump.get("entries", [])]
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
    pickler.fast = True  # no numbers for objects that come again, as in torch's own: this packs far better
    pickler.dump(dict(dump, entries=entries, pg_config=config, pg_status=status))
    return made.getvalue()


def _pickled_entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        **entry,
        **{key: entry[key] or None for key in _TIMES if key in entry},
        "process_group": tuple((*map(str, entry.get("process_group", [])), "", "")[:2]),
        "frames": [
            {"name": name, "filename": file, "line": line} for name, file, line in entry.get("frames", [])
        ],
    }
