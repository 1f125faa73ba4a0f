"""torch's flight recorder: the groups, how far each has come, the last collectives.

Read from the dumps of torch 2.6 to 2.15, as hook/ddplaunch_flight.py brings them. With Gloo an entry's
`state` stays "scheduled" and its times 0 for ever, so `retired` says whether it is done; point-to-point
operations are no entries there, yet `pg_status` counts them with the collectives. With NCCL they are entries
with numbers of their own, which `pg_status` leaves out. Numbers in JSON are strings.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Optional

from ddplaunch.agent.contract import Collective, Frame, Group

KEPT = 64
"""Collectives of a rank that travel to the hub. Ranks that differ by more have long been waiting."""
_STEPS = 64
_WAY = re.compile(r"(?P<op>\w+) \d+(?:->|<-)(?P<peer>\d+)")
"""'send 0->1', 'recv 1<-0': this rank and its peer, by their places in the group."""


def counters(dump: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Process group id -> (last enqueued, last completed); torch's "none yet", -1, is 0 here.

    With Gloo a thread that is overtaken writes its own number over that of a later collective, and there it
    stays: where the dump has entries, those that are done count as well. Where it has none, as in that of
    each second, Gloo's numbers count point-to-point operations too, and only show that something moves.
    """
    done: dict[str, int] = {}
    others: dict[str, int] = {}  # operations with Gloo that are no collectives
    for entry in dump.get("entries", []):
        if entry.get("is_p2p"):
            continue
        number, seq = str(entry.get("pg_id", 0)), int(entry.get("collective_seq_id", 0))
        if _done(entry):
            done[number] = max(done.get(number, 0), seq)
        if str(entry.get("profiling_name", "")).startswith("gloo:"):
            others[number] = max(0, int(entry.get("op_id", seq)) - seq)
    found = {}
    for name, status in dump.get("pg_status", {}).items():
        enqueued, completed = (
            max(0, int(status.get(key, 0)) - others.get(name, 0))
            for key in ("last_enqueued_collective", "last_completed_collective")
        )
        found[name] = (enqueued, max(completed, done.get(name, 0)))
    return found


def collectives(
    dump: dict[str, Any], members: Optional[dict[str, list[int]]] = None, kept: int = KEPT
) -> list[Collective]:
    """The newest `kept` entries, oldest first. `members` as in `groups`: peers are global by them alone."""
    return [_collective(entry, members or {}) for entry in dump.get("entries", [])[-kept:]]


def with_lines(recorded: list[Collective], calls: list[Collective]) -> list[Collective]:
    """Both oldest first: what was recorded, with the user's line of the call that made it.

    A call makes its first entry right after it began, and before its thread begins another. What C++ issues
    by itself comes after a call that has its entry already, and keeps none.
    """
    found = list(recorded)
    for number, call in enumerate(calls):
        if len(recorded) >= KEPT and call.at < recorded[0].at:
            continue  # its own entry may have been cut off
        ends = next((each.at for each in calls[number + 1 :] if each.group == call.group), math.inf)
        for place, entry in enumerate(found):
            if entry.group == call.group and entry.p2p == call.p2p and call.at <= entry.at < ends:
                if not entry.frames and call.op.startswith(entry.op.strip("_").replace("_base", "")):
                    found[place] = dataclasses.replace(entry, frames=call.frames)
                break
    return found


def step_times(dump: dict[str, Any], kept: int = _STEPS) -> list[float]:
    """Seconds between successive collectives that are done, newest last."""
    done = [entry for entry in dump.get("entries", []) if _done(entry) and not entry.get("is_p2p")]
    times = [entry.get("time_created_ns", 0) for entry in done[-kept - 1 :]]
    return [round((after - before) / 1e9, 4) for before, after in zip(times, times[1:])]


def groups(
    dump: dict[str, Any],
    members: Optional[dict[str, list[int]]] = None,
    descriptions: Optional[dict[str, str]] = None,
) -> list[Group]:
    """`members`: group name -> global ranks, where the process could tell; idle groups count too."""
    names: dict[str, tuple[str, str]] = {}
    for entry in dump.get("entries", []):
        name, description = (*entry.get("process_group", []), "", "")[:2]
        names[str(entry.get("pg_id", name))] = (name, description)
    found = {}
    for number, (enqueued, completed) in counters(dump).items():
        name, description = names.get(number, (number, ""))
        ranks = (members or {}).get(name, [])
        found[name] = Group(
            name, ranks, enqueued, completed, description or (descriptions or {}).get(name, "")
        )
    for name, ranks in (members or {}).items():
        found.setdefault(name, Group(name, ranks, 0, 0, (descriptions or {}).get(name, "")))
    return [found[name] for name in sorted(found)]


def _collective(entry: dict[str, Any], members: dict[str, list[int]]) -> Collective:
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
        done=_done(entry),
        p2p=p2p,
        at=entry.get("time_created_ns", 0) / 1e9,
        frames=[Frame(str(name), str(file), int(line)) for name, file, line in entry.get("frames", [])],
        peer=peer,
        state="completed" if _done(entry) else str(entry.get("state", "")),
    )


def _done(entry: dict[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"
