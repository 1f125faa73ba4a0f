"""Rules about MPI: collectives that lack ranks, sends and receives that do not match.

MPI's calls are not counted. What decides is where every rank is at one moment, with the arguments of its
call: ranks that all wait in MPI, each for something that no other is about to do, wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ddplaunch.agent.contract import Fact, MpiCall, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import blocked, stacks
from ddplaunch.agent.diagnosis.run.causes import left_behind
from ddplaunch.agent.diagnosis.run.view import ENDED, IN_FINALIZE, IN_MPI, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import joined, say

_COLLECTIVES = frozenset(
    [
        *("barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv"),
        *("alltoall", "alltoallv", "alltoallw", "reduce", "allreduce", "reduce_scatter", "scan", "exscan"),
        *("reduce_scatter_block", "split", "split_type", "dup", "dup_with_info", "clone", "create"),
        *("create_cart", "create_graph", "free", "disconnect", "merge", "agree"),
    ]
)
_SENDS = frozenset(["send", "ssend", "rsend", "bsend", "sendrecv", "sendrecv_replace"])
_RECEIVES = frozenset(["recv", "probe", "mprobe", "sendrecv", "sendrecv_replace"])
_ANY = -1
_TRUNCATED = "MPI_ERR_TRUNCATE"

_ALL_OR_NONE = (
    "Every rank of a communicator must call its collectives, in the same order. Take the call out of the "
    "branch on the rank, or make a communicator of the ranks that take part: comm.Split(color=...)."
)
_PAIR_THEM = (
    "Each send needs a receive on the named rank with the same tag, in the same communicator, and vice "
    "versa. If two ranks both send first, use Sendrecv, or Isend and Irecv with Waitall."
)
_LONGER = "The receive buffer must hold the whole message: compare count and type on both sides."


@dataclass(frozen=True)
class _Meeting:
    """A collective on one communicator: the ranks in it, and those that should be."""

    name: str
    communicator: str
    members: tuple[int, ...]
    present: tuple[int, ...]
    certain: bool  # MPI itself gave the members

    @property
    def lacks(self) -> list[int]:
        return [rank for rank in self.members if rank not in self.present]


@dataclass(frozen=True)
class _Chain:
    """Ranks that each wait for the next one; `closed`: and the last one for the first."""

    ranks: list[int]
    why: str
    closed: bool


def mpi_partial_collective(view: JobView) -> Optional[Verdict]:
    """Return the verdict if some ranks of a communicator are in a collective and others are not."""
    meetings = [
        each for each in _meetings(view) if each.lacks and not {*each.lacks}.intersection(view.unseen)
    ]
    if not meetings or not _all_settled(view):
        return None
    meeting = meetings[0]
    messaging = [rank for rank in meeting.lacks if rank in view.ranks and _is_message(_call(view, rank))]
    if messaging == meeting.lacks:
        # Each of them lacks a message, perhaps from those in the collective.
        return mpi_unmatched(view)
    rivals = [
        other
        for other in meetings[1:]
        if other.members == meeting.members and len(other.present) == len(meeting.present)
    ]
    culprits = [rank for rank in meeting.lacks if rank not in messaging]
    if rivals:  # equally many ranks: none is known to be wrong
        culprits = sorted({*culprits, *meeting.present})
    location = view.locations[meeting.present[0]]
    on = f" on {meeting.communicator}" if meeting.communicator else ""
    known = [rank for rank in meeting.lacks if rank in view.ranks]
    groups = list(view.groups_of_ranks(known).values())
    places = [say(subjects.ranks(group), f" {_stands(view, group)}") for group in groups[:3]]
    elsewhere = say(": ", joined("; ", places)) if groups else ()
    if groups == [meeting.lacks]:
        elsewhere = say(f", which {_stands(view, groups[0])}")
    return view.verdict(
        code="mpi-partial-collective",
        sentence=say(
            f"{location}{on} has ",
            subjects.ranks(meeting.present),
            " and lacks ",
            subjects.ranks(meeting.lacks),
            elsewhere,
        ),
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=sure.MPI_MEMBERS_GUESSED
        if not meeting.certain
        else sure.MPI_RIVAL_CALLS
        if rivals
        else sure.MPI_LACKS_RANKS,
        facts=[*where_in_mpi(view, view.waiting), *_gone(view)],
        hint=_ALL_OR_NONE,
    )


def mpi_deadlock(view: JobView) -> Optional[Verdict]:
    """Return the verdict if ranks wait for messages in a circle, or two disagree about one message."""
    if not _all_settled(view):
        return None
    peers = {rank: _waits_for(view, rank)[0] for rank in view.waiting}
    circle = blocked.find_circle({rank: [peer] for rank, peer in peers.items() if peer is not None})
    return _unmatched(view, _circle(view, circle)) if circle else None


def mpi_unmatched(view: JobView) -> Optional[Verdict]:
    """Return the verdict on ranks that wait to receive, or to be received, while their peer does otherwise.

    Which side is wrong is open: one may have left out a message, or the other may wait for one too many.
    """
    chains = _chains(view)
    if not chains:
        return None
    same = [rank for chain in chains if chain.why == chains[0].why for rank in chain.ranks]
    return _unmatched(view, _Chain(sorted({*same}), chains[0].why, False))


def _unmatched(view: JobView, chain: _Chain) -> Verdict:
    waiting = [rank for rank in chain.ranks if _is_message(_call(view, rank))]
    parts = [f"rank {rank} is in {described(view, rank)}" for rank in waiting[:3]]
    parts += ["and so on"] if len(waiting) > 3 else []
    culprits = sorted(chain.ranks)
    return view.verdict(
        code="mpi-unmatched",
        sentence=f"{', '.join(parts)}: {chain.why}",
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=sure.MPI_CIRCLE if chain.closed else sure.MPI_ONE_SIDED,
        facts=[f"rank {rank}: {described(view, rank)}" for rank in view.waiting[:8]],
        hint=_PAIR_THEM,
    )


def mpi_unmatched_in_words(view: JobView) -> Optional[Verdict]:
    """Return the verdict if MPI itself has found that a message is longer than its receive."""
    for number, rank in view.ranks.items():
        for raised in rank.raised:
            if raised.handled or _TRUNCATED not in raised.message or "MPI" not in raised.type:
                continue
            site = stacks.user_frame(raised.frames)
            return view.verdict(
                code="mpi-unmatched",
                sentence=f"rank {number} was sent more than it receives{phrases.at(site)}: {raised.message}",
                ranks=[number],
                victims=view.victims_of([number]),
                confidence=sure.OWN_WORDS,
                facts=[f"rank {number} raised it in {stacks.chain(raised.frames)}"] if raised.frames else [],
                hint=_LONGER,
            )
    return None


# --- what the calls say


def _call(view: JobView, rank: int) -> Optional[MpiCall]:
    """Return the MPI function in which a living rank is; its name alone if its arguments are not known."""
    location = view.locations[rank]
    if location.kind != IN_MPI:
        return None
    found = view.ranks[rank].mpi_call
    return found if found is not None and found.name == location.what else MpiCall(location.what)


def _meetings(view: JobView) -> list[_Meeting]:
    """Return every collective in which a rank is; the one with the most ranks first."""
    found: dict[tuple[str, tuple[int, ...]], list[tuple[int, MpiCall]]] = {}
    for rank in view.alive:
        call = _call(view, rank)
        if call is not None and call.name.lower() in _COLLECTIVES:
            members = tuple(sorted(call.ranks or view.world))
            found.setdefault((call.name, members), []).append((rank, call))
    meetings = [
        _Meeting(
            name,
            calls[0][1].communicator,
            members,
            tuple(rank for rank, _ in calls),
            all(call.size for _, call in calls),
        )
        for (name, members), calls in found.items()
    ]
    return sorted(meetings, key=lambda meeting: (-len(meeting.present), meeting.present))


def _all_settled(view: JobView) -> bool:
    """Whether every living rank is at a place from which it will not come."""
    return all(view.locations[rank].kind == IN_MPI for rank in view.alive)


def _chains(view: JobView) -> list[_Chain]:
    """Return, for every rank that waits for a message, the chain of ranks that it waits for."""
    if not _all_settled(view):
        return []
    found = [_follow(view, first) for first in view.waiting]
    return [chain for chain in found if chain is not None]


def _follow(view: JobView, first: int) -> Optional[_Chain]:
    path: list[int] = []
    rank = first
    while rank not in path:
        path.append(rank)
        peer, why = _waits_for(view, rank)
        if peer is None:
            return _Chain(path[-1:], why, False) if why else None
        if peer not in view.ranks or not _is_message(_call(view, peer)):
            return _Chain([rank, *([peer] if peer in view.ranks else [])], why, False)
        rank = peer
    return None  # a circle, which is a verdict of its own


def _circle(view: JobView, circle: list[int]) -> _Chain:
    names = {call.name.lower() for each in circle if (call := _call(view, each)) is not None}
    if names.isdisjoint(_SENDS):
        return _Chain(circle, "all receive, and nobody sends", True)
    if names.isdisjoint(_RECEIVES):
        return _Chain(circle, "all send, and nobody receives", True)
    return _Chain(circle, _waits_for(view, circle[0])[1], True)


def _is_message(call: Optional[MpiCall]) -> bool:
    return call is not None and call.name.lower() in _SENDS | _RECEIVES


def _waits_for(view: JobView, rank: int) -> tuple[Optional[int], str]:
    """Return the rank that this one waits for, and why that will not come; (None, "") if unknown."""
    call = _call(view, rank)
    if call is None or not _is_message(call):
        return None, ""
    if call.dest is not None and call.dest >= 0:
        why = _why_not(view, rank, call, call.dest, sends=True)
        if why:
            return call.dest, why
    if call.source == _ANY:
        senders = [other for other in view.alive if _sends_to(_call(view, other), rank)]
        return None, "" if senders or view.unseen else "nobody sends to it"
    if call.source is not None and call.source >= 0:
        why = _why_not(view, rank, call, call.source, sends=False)
        if why:
            return call.source, why
    return None, ""


def _why_not(view: JobView, rank: int, call: MpiCall, peer: int, sends: bool) -> str:
    """Return why `peer` does not take what `rank` sends, or send what it receives; empty: it does, or may."""
    other = _call(view, peer) if peer in view.ranks else None
    if other is None or not _is_message(other):
        return f"rank {peer} {_stands(view, [peer])}" if peer in view.ranks else ""
    verb = "receives nothing from" if sends else "sends nothing to"
    named = other.source if sends else other.dest
    if named is None:
        return f"rank {peer} {verb} rank {rank}"
    if named not in (rank, _ANY):
        return f"rank {peer} {verb} rank {rank}" if named >= 0 else ""
    if call.communicator != other.communicator:
        return f"they use different communicators, {call.communicator} and {other.communicator}"
    sent, wanted = (call.sendtag, other.recvtag) if sends else (other.sendtag, call.recvtag)
    if sent is not None and wanted is not None and min(sent, wanted) >= 0 and sent != wanted:
        return f"the tags differ, {sent} is sent and {wanted} is received"
    return ""


def _sends_to(call: Optional[MpiCall], rank: int) -> bool:
    return call is not None and call.dest is not None and (call.dest == rank or call.dest < 0)


# --- parts of sentences


def described(view: JobView, rank: int) -> str:
    """'Recv(source=1, tag=7) (train.py:31)'."""
    call, location = _call(view, rank), view.locations[rank]
    if call is None:
        return _stands(view, [rank])
    sided = call.sendtag is not None and call.recvtag is not None
    values = {
        "dest": call.dest,
        "sendtag" if sided else "tag": call.sendtag,
        "source": call.source,
        "recvtag" if sided else "tag ": call.recvtag,
    }
    parts = [f"{name.strip()}={_number(value)}" for name, value in values.items() if value is not None]
    parts += [f"{call.count} {call.dtype}".strip()] if call.count is not None else []
    return f"{call.name}{'(' + ', '.join(parts) + ')' if parts else ''}{phrases.at(location.site)}"


def _number(value: int) -> str:
    return str(value) if value >= 0 else "any" if value == _ANY else "?"


def _stands(view: JobView, group: list[int]) -> str:
    location = view.locations[group[0]]
    if location.kind == ENDED:
        return phrases.one_or(group, "has ended", "have ended")
    if location.what == IN_FINALIZE:
        has, waits = (phrases.one_or(group, *verbs) for verbs in (("has", "have"), ("waits", "wait")))
        return f"{has} finished and {waits} in {location}"
    return f"{phrases.one_or(group, 'is', 'are')} in {location}"


def where_in_mpi(view: JobView, ranks: list[int]) -> list[Fact]:
    """Return facts on where these ranks wait, one for all at the same call."""
    groups = view.groups_of_ranks([rank for rank in ranks if view.locations[rank].kind != ENDED])
    return view.standing(groups)[:6]


def _gone(view: JobView) -> list[str]:
    ended = [number for number, rank in view.ranks.items() if not rank.alive]
    return [f"{subjects.ranks(ended)} {phrases.one_or(ended, 'has', 'have')} ended"] if ended else []


def others_wait(view: JobView, in_mpi: list[int]) -> str:
    """Return ', the others wait in MPI_Recv' for the end of a sentence; empty if no rank waits."""
    groups = view.groups_of_ranks(in_mpi)
    if not groups:
        return ""
    others = phrases.others(len(in_mpi))
    place = next(iter(groups)) if len(groups) == 1 else "MPI"
    return f", {others} wait{'s' * (len(in_mpi) == 1)} in {place}"


# --- ranks that are gone, or never came to MPI_Init


_REACH_INIT = (
    "MPI_Init waits for all ranks: import mpi4py.MPI first on every rank, and do what takes long, or may "
    "fail, afterwards."
)
_STAY = "A rank must not leave before the others are done with it: let all ranks do the same number of steps."


def mpi_rank_lost(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a rank that left without failing, or never came to MPI_Init; others wait."""
    in_mpi = [rank for rank in view.alive if view.locations[rank].kind == IN_MPI]
    starting = [rank for rank in in_mpi if view.locations[rank].what == "MPI_Init"]
    late = [rank for rank in view.alive if rank not in in_mpi and not view.ranks[rank].mpi]
    absent = view.absent
    if starting and (late or absent):
        return _never_came(view, starting, late, absent)
    lost = left_behind(view)
    gone = [
        number
        for number, rank in view.ranks.items()
        if rank.exit is not None
        and not rank.exit.by_us
        and rank.exit.code == 0
        and number not in lost
        # A rank whose program has ended is done: what it missed shows in the calls of the others.
        and rank.mpi != "ending"
    ]
    if not gone or not lost or not any(rank.mpi for rank in view.ranks.values()):
        return None
    victims = sorted(lost)
    verb = phrases.one_or(gone, "is", "are")
    return view.verdict(
        code="mpi-rank-lost",
        sentence=say(
            subjects.ranks(gone),
            f" {verb} gone (exit code 0)",
            others_wait(view, in_mpi) or say(", and ", subjects.ranks(victims), " needed it"),
        ),
        ranks=gone,
        victims=victims,
        confidence=sure.MPI_RANK_GONE,
        facts=where_in_mpi(view, victims),
        hint=_STAY,
    )


def _never_came(view: JobView, starting: list[int], late: list[int], absent: list[int]) -> Verdict:
    ranks = sorted([*late, *absent])
    parts = view.places(late)
    if absent:
        parts.append(say("of ", subjects.ranks(absent), " no process has been seen"))
    chains = [(rank, stacks.main(view.ranks[rank].stacks)) for rank in late[:4]]
    return view.verdict(
        code="mpi-rank-lost",
        sentence=say(subjects.ranks(ranks), " never reached MPI_Init; ", joined("; ", parts[:3])),
        ranks=ranks,
        victims=starting,
        confidence=sure.MPI_RANK_GONE,
        facts=[
            *(
                view.of_rank(f"rank {rank}: {stacks.chain(frames)}", rank)
                for rank, frames in chains
                if frames
            ),
            *where_in_mpi(view, starting),
        ],
        hint=_REACH_INIT,
    )
