"""torch's flight recorder, as its JSON dump tells: the groups, how far each has come, the last collectives.

Read from `_dump_fr_trace_json` and `_dump_nccl_trace_json` of torch 2.6 to 2.15. With Gloo an entry's `state`
stays "scheduled" and its times 0 for ever, so `retired` says whether it is done. Sequence numbers of
point-to-point operations do not appear in `pg_status`. Numbers there are strings.
"""

from __future__ import annotations

from typing import Any, Optional

from ddplaunch.agent.contract import Collective, Group

KEPT = 64
"""Collectives of a rank that travel to the hub. Ranks that differ by more have long been waiting."""
_STEPS = 64


def counters(dump: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Process group id -> (last enqueued, last completed); torch's "none yet", -1, is 0 here.

    With Gloo a thread that is overtaken writes its own number over that of a later collective, and there it
    stays: where the dump has entries, those that are done count as well.
    """
    done: dict[str, int] = {}
    for entry in dump.get("entries", []):
        if _done(entry) and not entry.get("is_p2p"):
            number = str(entry.get("pg_id", 0))
            done[number] = max(done.get(number, 0), int(entry.get("collective_seq_id", 0)))
    found = {}
    for name, status in dump.get("pg_status", {}).items():
        enqueued, completed = (
            max(0, int(status.get(key, 0)))
            for key in ("last_enqueued_collective", "last_completed_collective")
        )
        found[name] = (enqueued, max(completed, done.get(name, 0)))
    return found


def collectives(dump: dict[str, Any], kept: int = KEPT) -> list[Collective]:
    """The newest `kept` entries, oldest first."""
    return [_collective(entry) for entry in dump.get("entries", [])[-kept:]]


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


def _collective(entry: dict[str, Any]) -> Collective:
    p2p = bool(entry.get("is_p2p"))
    return Collective(
        group=str((*entry.get("process_group", []), "")[0]),
        seq=int(entry.get("p2p_seq_id" if p2p else "collective_seq_id", 0)),
        op=str(entry.get("profiling_name", "")).partition(":")[2] or str(entry.get("profiling_name", "")),
        sizes=[[int(size) for size in sizes] for sizes in entry.get("input_sizes", [])],
        dtypes=[str(dtype) for dtype in entry.get("input_dtypes", [])],
        done=_done(entry),
        p2p=p2p,
        at=entry.get("time_created_ns", 0) / 1e9,
    )


def _done(entry: dict[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"
