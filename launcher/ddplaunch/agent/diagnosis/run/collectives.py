"""collective-mismatch: ranks called different collectives, or other shapes, at the same place.

Every group counts its collectives. What has the same number in the same group must be the same call on all
its ranks: it is one operation. Where the counts are not recorded, a rank's own last words may still tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Verdict
from ddplaunch.agent.diagnosis.run import blocked, consequences, stacks
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.diagnosis.run.location import BACKWARD, plain
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text import ranges

_HINT = (
    "All ranks of a group must call the same collectives in the same order, with the same shapes: look for "
    "a branch "
    "on the rank, or on data that differs between ranks, around the calls named here."
)
_FINGERPRINT = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), ?OpType=(\w+)"
    r"(?:, ?TensorShape=\[([\d, ]*)\])?(?:, ?TensorDtypes=(\w+))?"
)
_DETAIL_NAMES = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather"}
_ALIKE = frozenset(["all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor"])
"""Collectives whose tensors must be alike on all ranks; in others the root's, or each rank's, may differ."""


_MEETING = re.compile(
    r"all_(gather|reduce)(_into_tensor|_object|_coalesced)?|(monitored_)?barrier|" + BACKWARD
)
"""Calls from which no rank returns before all ranks of the group have come."""
_OF_A_ROOT = re.compile(r"(broadcast|scatter)(_object_list)?|gather(_object)?")
"""Calls that no rank leaves before the root has come; once it has left, all have their part, or get it."""

Source = dict[int, list[Collective]]
"""Rank -> what one kind of record has of it. Kinds number differently, and are never compared."""


@dataclass(frozen=True)
class Mismatch:
    """The `camps` that disagree at collective `number` of `group`.

    `number` 0: it is not known. `culprits` is the minority; all where the camps are of equal size; none where
    a member whose call is not known would decide.
    """

    group: str
    number: int
    camps: dict[str, list[int]]  # "broadcast [4] (train.py:88)" -> ranks
    culprits: list[int]

    @property
    def involved(self) -> int:
        return sum(len(ranks) for ranks in self.camps.values())

    @property
    def facts(self) -> list[str]:
        which = f"collective {self.number}" if self.number else "the call in which they wait"
        return [f"{subjects.ranks(ranks)}: {which} is {call}" for call, ranks in self.camps.items()]

    @property
    def tie(self) -> bool:
        return len(self.culprits) in (0, self.involved)


def collective_mismatch(view: JobView) -> Optional[Verdict]:
    """Same group, same number, different calls."""
    mismatch = find(view)
    return None if mismatch is None else _verdict(view, mismatch)


def _verdict(view: JobView, mismatch: Mismatch) -> Verdict:
    return view.verdict(
        code="collective-mismatch",
        sentence=(f"at collective {mismatch.number} " if mismatch.number else "") + _contrast(mismatch),
        ranks=mismatch.culprits,
        victims=view.victims_of(mismatch.culprits),
        confidence=(0.97 if mismatch.number else 0.8)
        if not mismatch.tie
        else 0.7
        if mismatch.culprits
        else 0.5,
        facts=[
            *mismatch.facts,
            f"process group {mismatch.group!r}; known of {mismatch.involved} of {len(view.world)} ranks",
        ],
        hint=_HINT,
    )


def mismatch_in_words(view: JobView) -> Optional[Verdict]:
    """Return the verdict where a rank reported another call of its peer, and no record shows more."""
    reports = {}
    for number, rank in view.ranks.items():
        for text in consequences.last_words(rank):
            if consequences.MISMATCH.search(text):
                reports[number] = text
    if not reports:
        return None
    mismatch = _fingerprinted(view, reports) or find(view, failed_too=True) or _with_backward(view)
    if mismatch is not None:
        return _verdict(view, mismatch)
    speakers = sorted(reports)
    return Verdict(
        code="collective-mismatch",
        sentence=f"{subjects.ranks(speakers)} ended because the ranks called different collectives; which "
        "rank differs was not recorded",
        where="run",
        confidence=0.5,
        facts=[f"rank {rank} said: {phrases.clipped(text, 400)}" for rank, text in sorted(reports.items())],
        hint=f"{_HINT} TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare the calls before it starts them.",
    )


def _fingerprinted(view: JobView, reports: dict[int, str]) -> Optional[Mismatch]:
    """Return the mismatch that ranks report under TORCH_DISTRIBUTED_DEBUG=DETAIL, with another's call."""
    calls: dict[int, Collective] = {}
    for text in reports.values():
        for rank, number, op, sizes, dtype in _FINGERPRINT.findall(text):
            shape = [int(size) for size in sizes.split(",") if size.strip()]
            name = _DETAIL_NAMES.get(op, op.lower())
            calls[int(rank)] = Collective("0", int(number), name, [shape], [dtype] if dtype else [])
    camps = _camps(calls)
    if len(camps) < 2:
        return None
    culprits = _minority(camps) or sorted(calls)
    ordered = sorted(camps, key=lambda ranks: ranks[0] not in culprits)
    return Mismatch("0", min(call.seq for call in calls.values()), _labelled(view, calls, ordered), culprits)


def _with_backward(view: JobView) -> Optional[Mismatch]:
    """Return the mismatch of a call of the program's with one of DDP's backward, which the ring has not."""
    within: dict[int, Collective] = {}
    behind: dict[int, list[Frame]] = {}
    for number, rank in view.ranks.items():
        raised = [each.frames for each in rank.raised if not each.handled]
        frames = raised[-1] if raised else stacks.main(rank.stacks)
        if rank.calls and rank.calls[-1].state == "entered":
            within[number] = rank.calls[-1]
        elif rank.calls and stacks.in_backward(frames):
            behind[number] = frames
    if not within or not behind or [*view.world] != sorted([*within, *behind]):
        return None
    camps = _camps(within)
    next_calls = {(call.group, call.seq + 1) for call in (view.ranks[rank].calls[-1] for rank in behind)}
    if len(camps) > 1 or {(call.group, call.seq) for call in within.values()} != next_calls:
        return None
    (group, number) = next_calls.pop()
    both = sorted([[*within], [*behind]], key=len)
    labels = _labelled(view, within, camps)
    places = {f"backward{phrases.at(stacks.user_frame(frames))}" for frames in behind.values()}
    if len(labels) > 1 or len(places) > 1:
        return None
    reports = {**labels, places.pop(): [*behind]}
    culprits = both[0] if len(both[0]) < len(both[1]) else view.world
    ordered = sorted(reports, key=lambda call: reports[call] != culprits)
    return Mismatch(group, number, {call: reports[call] for call in ordered}, culprits)


def find(view: JobView, failed_too: bool = False) -> Optional[Mismatch]:
    """Return the earliest collective that is not done everywhere and was called differently.

    A collective that failed is recorded as done: with `failed_too`, the last one of each group is looked at,
    and what the hook's ring has kept of ranks whose recorder died with them.
    """
    recorded = {number: rank.collectives for number, rank in view.ranks.items() if rank.collectives}
    called = {number: rank.calls for number, rank in view.ranks.items() if rank.calls}
    sources = [recorded, called] if failed_too or len(called) > len(recorded) else [recorded]
    found = [_differing(view, source, failed_too) for source in sources]
    known = [mismatch for mismatch in found if mismatch is not None]
    if not known and not failed_too:
        return _by_stacks(view)
    return max(known, key=lambda mismatch: (not mismatch.tie, mismatch.involved), default=None)


def _by_stacks(view: JobView) -> Optional[Mismatch]:
    """Return the mismatch that stacks alone show, of ranks whose calls nobody has counted.

    All must be in calls of the default group that nobody leaves before all have come: then they are all at
    the same call, or out of step. Ranks that wait for a root are out of step as well: the root stands in
    another call, and without it no rank can leave. Where the root waits, other ranks may have left already.
    """
    if view.waiting != view.world or view.stuck_for < view.evidence.notice_after:
        return None
    places: dict[str, list[int]] = {}
    for number in view.world:
        rank, location = view.ranks[number], view.locations[number]
        known = location.what == BACKWARD or (rank.stands_in is not None and not rank.groups)
        asleep = rank.process is not None and rank.process.state == "S" and blocked.is_held(view, number)
        held = any(stack.owns_gil and not stack.main for stack in rank.stacks)
        meets = _MEETING.fullmatch(location.what) or _waits_for_root(rank)
        if not known or not asleep or held or not meets:
            return None
        places.setdefault(location.what, []).append(number)
    camps = sorted(places.values(), key=lambda ranks: (len(ranks), ranks))
    if len(camps) < 2:
        return None
    culprits = camps[0] if len(camps) == 2 and len(camps[0]) < len(camps[1]) else []
    return Mismatch("0", 0, {str(view.locations[ranks[0]]): ranks for ranks in camps}, culprits)


def _waits_for_root(rank: RankEvidence) -> bool:
    call = rank.stands_in
    if call is None or call.peer in (None, rank.rank):
        return False
    return _OF_A_ROOT.fullmatch(call.op) is not None


def _differing(view: JobView, source: Source, failed_too: bool) -> Optional[Mismatch]:
    entries = [entry for its in source.values() for entry in its if not entry.p2p]
    places = {(entry.seq, entry.group) for entry in entries if not entry.done}
    if failed_too:
        last = {entry.group: entry.seq for entry in sorted(entries, key=lambda entry: entry.seq)}
        places |= {(number, group) for group, number in last.items()}
    for number, group in sorted(places):
        calls = _at(source, group, number)
        camps = _camps(calls)
        if len(camps) > 1:
            before = _at(source, group, number - 1)
            members = view.members.get(group, view.world)
            unseen = [rank for rank in view.unseen if rank in members]
            silent = [rank for rank in view.alive if rank in members and rank not in source]
            both = [] if unseen or silent else sorted(calls)  # the call of one of those would decide
            culprits = _minority(camps, len(unseen)) or _newcomers(camps, calls, before) or both
            reports = _labelled(view, calls, sorted(camps, key=lambda ranks: ranks[0] not in culprits))
            return Mismatch(group, number, reports, culprits)
    return None


def _at(source: Source, group: str, number: int) -> dict[int, Collective]:
    """Return what each rank called as this collective of this group."""
    return {
        rank: entry
        for rank, entries in source.items()
        for entry in entries
        if entry.group == group and entry.seq == number and not entry.p2p
    }


def _camps(calls: dict[int, Collective]) -> list[list[int]]:
    """Return the ranks, grouped by what they called; the largest camp first."""
    comparable = {plain(call.op) for call in calls.values()} <= _ALIKE
    camps: dict[object, list[int]] = {}
    for rank, call in sorted(calls.items()):
        shape = (str(call.sizes), str(call.dtypes)) if comparable and call.sizes else ()
        camps.setdefault((plain(call.op), shape), []).append(rank)
    return sorted(camps.values(), key=lambda ranks: (-len(ranks), ranks))


def _minority(camps: list[list[int]], unseen: int = 0) -> list[int]:
    """Return the ranks outside the largest group of equal calls; none where unseen ranks could change it."""
    if len(camps[0]) <= len(camps[1]) + unseen:
        return []
    return sorted(rank for ranks in camps[1:] for rank in ranks)


def _newcomers(
    camps: list[list[int]], calls: dict[int, Collective], before: dict[int, Collective]
) -> list[int]:
    """Return the ranks that changed the shape, where groups of equal size differ in shape alone."""
    if len({plain(call.op) for call in calls.values()}) > 1 or not before.keys() >= calls.keys():
        return []
    changed = [ranks for ranks in camps if any(calls[rank].sizes != before[rank].sizes for rank in ranks)]
    comparable = len({str(before[rank].sizes) for rank in calls}) == 1
    few = comparable and len(changed) < len(camps)
    return sorted(rank for ranks in changed for rank in ranks) if few else []


def _labelled(view: JobView, calls: dict[int, Collective], camps: list[list[int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    types = {tuple(call.dtypes) for call in calls.values() if call.dtypes}
    for camp in camps:
        for rank in camp:
            call = calls[rank]
            parts = [plain(call.op), *(str(size) for size in call.sizes if size)]
            parts += call.dtypes if len(types) > 1 else []
            site = stacks.user_frame(call.frames) or view.locations[rank].site
            found.setdefault(" ".join(parts) + phrases.at(site), []).append(rank)
    return found


def _contrast(mismatch: Mismatch) -> str:
    (first, odd), *rest = mismatch.camps.items()
    parts = [f"{subjects.ranks(odd)} called {first}"]
    for call, ranks in rest:
        plain_majority = len(rest) == 1 and not mismatch.tie and len(ranks) > 1
        parts.append(f"the others {call}" if plain_majority else f"{subjects.ranks(ranks)} called {call}")
    return ranges.listing(parts) if mismatch.tie else ", ".join(parts)
