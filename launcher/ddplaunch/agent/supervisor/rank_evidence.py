"""Builds a rank's evidence from its hook, its samples and its files. Pure. `collector` calls it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ddplaunch.agent.contract import (
    Collective,
    Exited,
    Frame,
    Group,
    MpiCall,
    Process,
    Raised,
    RankEvidence,
    Rendezvous,
    Setting,
    Signalled,
    Stack,
    Stand,
    codec,
)
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.evidence import flight, ring
from ddplaunch.agent.supervisor.hooks import HookMessage
from ddplaunch.agent.supervisor.ranks import Rank

_CALLS = 32
"""Calls of each rank that are sent to the hub. Ranks that are further apart have waited for one another long
before; of a pipeline that sends several times in a round, some rounds must be known."""
_PLACES = 8
_JUST_GONE = 30.0
"""Seconds before a rank's last progress within which the end of a child may be why it stopped."""
_AT_ONCE = 1.0
"""Seconds between the end of a rank's connection and the moment at which its own end was noticed."""
_LEAVES_WITHIN = 10.0
"""Seconds from a call of sys.exit to the end of Python, which joins threads first."""
_OWN_END = 5.0
"""Seconds between the last traceback in the log and the death that it explains."""


def living_evidence(
    rank: Rank, answer: HookMessage, its_stacks: list[Stack], source: str, now: float, is_asleep: bool
) -> RankEvidence:
    """Return a living rank's evidence at `now` (time.monotonic()). `answer`: its hook's, to `dump`.

    `is_asleep`: its main thread.
    """
    dumps: list[dict[str, Any]] = list(answer.get("recorders", {}).values())
    members = {name: ranks for name, (ranks, _) in answer.get("groups", {}).items()}
    descriptions = {name: text for name, (_, text) in answer.get("groups", {}).items()}
    collectives = sorted(
        (entry for dump in dumps for entry in flight.collectives(dump, members)), key=lambda entry: entry.at
    )
    counted = None if dumps else answer.get("sequences")
    if counted is None:
        groups = _merged([flight.groups(dump, members, descriptions) for dump in dumps])
    else:
        calls = rank.ring.calls if rank.ring else []
        is_open = open_group(counted, stacks.main(its_stacks), calls, is_asleep)
        groups = counted_groups(counted, members, descriptions, is_open)
    return RankEvidence(
        rank=rank.number,
        local_rank=rank.local,
        pid=rank.pid,
        alive=True,
        phase=rank.phase,
        raised=list(rank.raised),
        stacks=its_stacks,
        stack_source=source,
        still_for=round(rank.progress.still_for(now), 1),
        stuck_for=round(rank.progress.stuck_for(now), 1),
        groups=groups,
        unrecorded="" if counted is None else str(answer.get("torch", "")),
        collectives=flight.with_lines(collectives[-flight.KEPT :], rank.ring.calls if rank.ring else []),
        step_times=max((flight.step_times(dump) for dump in dumps), key=len, default=[]),
        initialized=answer.get("initialized", rank.initialized),
        backend=str(answer.get("backend", "")),
        mpi=rank.mpi,
        mpi_call=mpi_call_from(answer) or _as_before(rank, its_stacks),
        last_output=rank.last_output,
        last_output_at=rank.last_output_at,
        last_lines=list(rank.last_lines),
        world_size=_world_size(rank, answer),
        numbered_by=rank.numbered_by,
        launcher=rank.parent,
        restart=rank.restart,
        max_restarts=rank.max_restarts,
        rendezvous=rank.rendezvous,
        stands=_stands(rank),
        device=str(answer.get("device", "")),
        broadcasting=int(answer.get("broadcasting", 0)),
        signals=_signals(answer.get("signals", [])),
        keys=[str(key) for key in answer.get("keys", [])],
        awaited_file=str(answer.get("awaited_file", "")),
        in_flight=in_flight_from(answer),
    )


def with_processes(
    rank: Rank, children: list[Process], told: Sequence[Sequence[Any]], now: float
) -> list[Process]:
    """Return a rank's children with their names from multiprocessing, and those of it that are just gone.

    Somebody has waited for these, as `is_alive` does, and the kernel has forgotten them. `told`: by the hook.
    """
    names = {int(pid): str(name) for pid, name, _ in told}
    named = [dataclasses.replace(child, name=names.get(child.pid, "")) for child in children]
    since = now - rank.progress.stuck_for(now) - _JUST_GONE
    gone = [
        Process(int(pid), "X", name=str(name), exit_signal=max(0, -code), exit_code=max(0, code))
        for pid, name, code in told
        if code and rank.gone.get(pid, 0.0) >= since
    ]
    return [*named, *gone]


def _stands(rank: Rank) -> list[Stand]:
    places = Counter(rank.stands).most_common()
    rest: Counter[str] = Counter()
    for (kind, _), seconds in places[_PLACES:]:
        rest[kind] += seconds
    first = [Stand(kind, seconds, site) for (kind, site), seconds in places[:_PLACES]]
    return [*first, *(Stand(kind, seconds) for kind, seconds in rest.items())]


def _world_size(rank: Rank, answer: HookMessage) -> Optional[int]:
    """Return the size of the default group or, without one, the world size that is known of the rank."""
    sizes = [len(ranks) for ranks, text in answer.get("groups", {}).values() if text == "default_pg"]
    return max(sizes, default=rank.world_size)


def _signals(told: Sequence[Sequence[Any]]) -> list[Signalled]:
    return [Signalled(int(number), float(at), _frame(it)) for number, at, it in told]


def rendezvous_from(message: dict[str, Any]) -> Rendezvous:
    """Return the call of init_process_group in a hook's message."""
    settings = [
        Setting(str(name), str(value), _frame(frame), str(given))
        for name, value, frame, given in message["settings"]
    ]
    timeout = message["timeout"]
    return Rendezvous(
        method=str(message["method"]),
        at=float(message["at"]),
        address=str(message["address"]),
        port=message["port"],
        file=str(message["file"]),
        file_used=bool(message.get("file_used")),
        rank=message["rank"],
        world_size=message["world_size"],
        backend=str(message["backend"]),
        timeout=None if timeout is None else float(timeout),
        frame=_frame(message["frame"]),
        settings=settings,
        script=str(message["script"]),
        agent_store=bool(message.get("agent_store")),
        given_port=message.get("given_port"),
        given_world=message.get("given_world"),
        given_rank=message.get("given_rank"),
    )


def _frame(parts: Optional[list[Any]]) -> Optional[Frame]:
    return None if parts is None else Frame(str(parts[0]), str(parts[1]), int(parts[2]))


def mpi_call_from(answer: HookMessage) -> Optional[MpiCall]:
    """Return the MPI function in a hook's answer. Raises ContractError."""
    return codec.load(MpiCall, answer["mpi_call"]) if answer.get("mpi_call") else None


def _as_before(rank: Rank, its_stacks: list[Stack]) -> Optional[MpiCall]:
    """Return the MPI function that a silent hook last reported, if the rank is still in the same call."""
    before = rank.evidence
    if before is None or before.mpi_call is None or not its_stacks or not before.stacks:
        return None
    now, then = its_stacks[0].frames, before.stacks[0].frames
    same = now[1:] == then[1:] and now[:1] and now[0].name == before.mpi_call.name
    return before.mpi_call if same else None


def exception_from(message: dict[str, Any], handled: bool) -> Raised:
    """Return the exception in a hook's message."""
    frames = [Frame(str(name), str(file), int(line)) for name, file, line in message["frames"]]
    return Raised(
        str(message["type"]),
        str(message["message"]),
        float(message["at"]),
        frames,
        handled,
        "hook",
        str(message.get("cause", "")),
    )


def in_flight_from(message: dict[str, Any]) -> list[Raised]:
    """Return what was being handled, from a hook's answer, or from its message of what has ended the rank."""
    return [exception_from(each, handled=True) for each in message.get("in_flight", [])]


def _merged(lists: list[list[Group]]) -> list[Group]:
    """Return one entry per group: each backend's recorder lists all groups and counts its own collectives."""
    merged: dict[str, Group] = {}
    for group in (group for groups in lists for group in groups):
        known = merged.get(group.name)
        if known is None or group.enqueued > known.enqueued:
            merged[group.name] = group
    return [merged[name] for name in sorted(merged)]


def evidence_so_far(rank: Rank) -> RankEvidence:
    """Return a rank's last evidence, updated with its present state and its end."""
    evidence = rank.evidence
    if evidence is None:
        evidence = RankEvidence(rank.number, rank.local, rank.pid, rank.alive)
    crash = rank.crash if rank.exit is not None and rank.exit.code is None else []
    return dataclasses.replace(
        evidence,
        rank=rank.number,
        local_rank=rank.local,
        world_size=evidence.world_size or rank.world_size,
        numbered_by=rank.numbered_by,
        launcher=rank.parent,
        restart=rank.restart,
        max_restarts=rank.max_restarts,
        rendezvous=rank.rendezvous,
        alive=rank.alive,
        phase=rank.phase,
        mpi=rank.mpi or evidence.mpi,
        exit=_end(rank),
        raised=_own_end(rank) if not rank.alive else evidence.raised,
        in_flight=rank.in_flight or evidence.in_flight,
        signals=(_signals(rank.line.signals) if rank.line is not None else []) or evidence.signals,
        left=_left(rank),
        calls=ring.newest(rank.ring.calls, _CALLS) if rank.ring is not None else [],
        sequences=rank.ring.sequences if rank.ring is not None else [],
        last_output=rank.last_output,
        last_output_at=rank.last_output_at,
        last_lines=list(rank.last_lines),
        stacks=crash or evidence.stacks,
        stack_source="crash" if crash else evidence.stack_source,
    )


def _end(rank: Rank) -> Optional[Exited]:
    """Return how it ended. Its hook says when Python shuts down: that was read before its connection closed.

    A program may close our connection itself: then it was closed long before. What multiprocessing has forked
    always ends at once.
    """
    end, line = rank.exit, rank.line
    if end is None or end.code != 0 or line is None or line.ending or not line.thread:
        return end
    if not rank.initialized or line.role == "child":
        return end
    return dataclasses.replace(end, at_once=abs(end.at - line.closed_at) < _AT_ONCE)


def _left(rank: Rank) -> list[Raised]:
    """Return the call, as of sys.exit, that ended it, and what it handled there; empty if it ended otherwise.

    A program may catch the SystemExit, go on, and end otherwise.
    """
    line = rank.line
    if line is None or not line.left or rank.exit is None or rank.exit.code is None:
        return []
    call, *handled = (exception_from(each, handled=True) for each in line.left)
    went_on = rank.ring is not None and any(each.at > call.at for each in rank.ring.calls)
    went_on = went_on or any(not each.handled for each in rank.raised)
    if went_on or line.ending - call.at > _LEAVES_WITHIN or rank.exit.code != _status(call.message):
        return []
    return [call, *handled]


def _status(argument: str) -> int:
    """Return the exit code of `sys.exit(argument)` or `os._exit(argument)`, by the argument's repr."""
    if argument in ("", "None"):
        return 0
    if argument in ("True", "False"):
        return int(argument == "True")
    try:
        return int(argument) & 0xFF
    except ValueError:
        return 1  # a message, or an object


def _own_end(rank: Rank) -> list[Raised]:
    """Return the exceptions of an ended rank. The last traceback in its log counts as uncaught."""
    known = list(rank.raised)
    if rank.exit is None or not rank.exit.code or not known or any(not each.handled for each in known):
        return known
    if abs(rank.exit.at - known[-1].at) < _OWN_END:
        known[-1] = dataclasses.replace(known[-1], handled=False)
    return known


# --- a rank's calls by torch's sequence numbers, where torch keeps no record of calls with Gloo
#
# torch before 2.8 says how many collectives a group has begun, also those of DDP in backward(), and
# nothing else about them. Whether one is open follows from the main thread: in the program's call, it is
# the last one; in torch's own, it may be several.

Counted = Mapping[str, tuple[int, Optional[int], Optional[int]]]
"""By group: torch's sequence number, and the program's collectives and messages, as the hook reports them."""
_UNCOUNTED = "monitored_barrier"
"""It sends and receives, and torch does not count it."""


def counted_groups(
    counted: Counted, members: Mapping[str, list[int]], descriptions: Mapping[str, str], is_open: str
) -> list[Group]:
    """Return by name the groups whose collectives can be counted. `is_open`: the one whose last is open."""
    return [
        Group(name, members.get(name, []), begun, begun - (name == is_open), descriptions.get(name, ""))
        for name, (begun, _) in sorted(_collectives(counted).items())
    ]


def open_group(
    counted: Counted, frames: Sequence[Frame], calls: Sequence[Collective], is_asleep: bool
) -> str:
    """Return the group in whose collective the main thread waits; "" if there is none, or it is not known.

    `frames`: of the main thread; `calls`: the program's own, from the hook's ring. torch's own calls are in
    the group that has begun more than the program has called, if there is only one such group.
    """
    known = _collectives(counted)
    last = calls[-1] if calls else None
    inside = last is not None and last.state == "entered" and not last.p2p and last.op != _UNCOUNTED
    if last is not None and inside and stacks.collective(frames):
        return last.group if known.get(last.group, (0, 0))[0] else ""
    if not is_asleep or stacks.torchs_own(frames) is None:
        return ""
    more = [name for name, (begun, own) in known.items() if begun > own]
    return more[0] if len(more) == 1 and len(known) == len(counted) else ""


def _collectives(counted: Counted) -> dict[str, tuple[int, int]]:
    """Return how many collectives each group has begun, and how many of them the program has called.

    The program cannot have called more than were begun: then the numbers are of different things.
    """
    return {
        name: (number - messages, own)
        for name, (number, own, messages) in counted.items()
        if own is not None and messages is not None and own <= number - messages
    }
