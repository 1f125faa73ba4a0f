"""Rules on sends and receives, and on operations that the program never waited for.

p2p-deadlock: ranks wait in a circle for one another's messages, or for a message that is never sent. Gloo's
sends wait for their receives, just as receives wait for their sends. A circle of ranks that are all blocked
cannot open: each of them would have to go on first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Collective, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import blocked, branches, call_records, causes, stacks, ties
from ddplaunch.agent.diagnosis.run.blocked import Block
from ddplaunch.agent.diagnosis.run.causes import left_behind
from ddplaunch.agent.diagnosis.run.view import Found, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import joined, say

_WRONG_PEER = (
    "Compare how this rank computes its peer with how the others do: most often an index that wraps around."
)
_SHOWN = 6
"""Ranks of a circle that a sentence names."""


def message_deadlock(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a circle with at least one send or receive in it."""
    blocks = blocked.find_blocks(view)
    waits = {rank: block.awaits for rank, block in blocks.items()}
    circles = [[blocks[rank] for rank in ranks] for ranks in blocked.find_circles(waits)]
    if not circles or not any(block.call for block in circles[0]):
        return None
    circle, further = _from_the_earliest(circles[0]), circles[1:]
    differs = _tags(view, circle)
    begun = any(_begun_sends(view, block.rank, other.rank) for block in circle for other in circle)
    left_out = _left_out(view, circle) or _ended_before_its_like(view, circle)
    wrong = _wrong_peer(view, circle)
    uneven = "" if left_out or wrong is not None or differs or begun else _uneven(view, circle)
    if left_out or wrong is not None:
        further = []
    members = [block.rank for each in (circle, *further) for block in each]
    culprits = sorted(left_out or members) if wrong is None else [wrong.rank]
    round_trip = _round_trip(circle)
    parts = [f"rank {block.rank} is in {block.what}" for block in circle[:_SHOWN]]
    parts += ["and so on"] if len(circle) > _SHOWN else []
    left = [f"rank {rank} {its.text}" for rank, its in sorted(left_out.items())]
    reason = "".join(f": {each}" for each in [differs or (wrong.text if wrong else ""), *left[:2]] if each)
    reason += "".join(f"; others in another: {_round_trip(each)}" for each in further[:2])
    return view.verdict(
        code="p2p-deadlock",
        sentence=f"ranks wait in a circle: {round_trip}: {', '.join(parts)}{reason}",
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=sure.MESSAGES_OUT_OF_COUNT if uneven else _confidence(circle, left_out),
        facts=[
            *(
                f"rank {block.rank} cannot go on without rank {after.rank}"
                for block, after in zip(circle[:_SHOWN], [*circle[1:], circle[0]])
            ),
            *(
                f"rank {rank} called {call_records.described(its.call)} in each of the rounds before"
                for rank, its in sorted(left_out.items())
            ),
            *view.whereabouts([rank for rank in view.waiting if rank not in culprits])[:4],
        ],
        hint=_WRONG_PEER if wrong is not None else uneven or _hint(circle, bool(differs), begun, left_out),
    )


def asks_a_blocked_rank(view: JobView) -> Optional[Found]:
    """Return the verdict on a straggler that waits for data from a rank whose collective lacks this one.

    The program has a connection of its own between them. Either may be at fault: the one that asks outside
    the collective, or the one that answers in the thread that calls it. No thread of the latter could answer.
    """
    asked = {rank: ties.rank_awaited(view, rank) for rank in view.stragglers if rank not in view.explained}
    blocks = blocked.find_blocks(view) if any(other is not None for other in asked.values()) else {}
    for rank, other in asked.items():
        block = blocks.get(other) if other is not None else None
        wait, site = ties.awaited(view, rank), view.locations[rank].site
        if block is None or wait is None or site is None or rank not in block.awaits:
            continue
        verdict = view.verdict(
            code="p2p-deadlock",
            sentence=f"ranks wait in a circle: {rank} → {block.rank} → {rank}: rank {rank} is in "
            f"{phrases.place(site)}, {wait.text}, and rank {block.rank} is in {block.what}, for which rank "
            f"{rank} is missing",
            ranks=sorted([rank, block.rank]),
            victims=[each for each in view.waiting if each != block.rank],
            confidence=sure.ASKS_A_BLOCKED_RANK,
            facts=[
                *view.line_shown(rank, site),
                f"no other thread of rank {block.rank} could answer",
                *view.counts(),
            ],
            hint=_ANSWER_IN_A_THREAD.format(asks=rank, answers=block.rank),
        )
        return Found(verdict, [rank])
    return None


_ANSWER_IN_A_THREAD = (
    "Rank {answers} cannot answer while it is in a collective: answer in a thread of its own (with asyncio, "
    "call the collective by run_in_executor), or let rank {asks} ask before the collective, in every round."
)


def unanswered(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a rank that receives from any rank, while all others wait for it: none will send.

    It has left out an answer, if one of them waits for it in a receive that was answered before. Otherwise
    that rank may have asked for one answer too many, and both are named.
    """
    blocks = blocked.find_blocks(view)
    servers = [rank for rank, block in blocks.items() if block.call is not None and block.call.peer == -1]
    if len(servers) != 1 or sorted(blocks) != view.alive or view.unseen or view.absent:
        return None
    server = servers[0]
    known, more = {server}, True
    while more:  # until nobody else waits for one that cannot go on
        found = {rank for rank, block in blocks.items() if known.intersection(block.awaits)} - known
        known, more = known | found, bool(found)
    asking = [
        rank
        for rank, block in sorted(blocks.items())
        if block.call is not None and block.call.peer == server and blocked.way(block.call) == "recv"
    ]
    if not asking or len(known) < len(blocks):
        return None
    owes = all(_was_answered(view, blocks[rank]) for rank in asking)
    culprits = [server] if owes else sorted([server, *asking])
    site = view.locations[server].site
    exits = branches.rounds_left(view, server, site) if site is not None and owes else []
    places: dict[str, list[int]] = {}
    for rank in sorted(known - {server}, key=lambda rank: (rank not in asking, rank)):
        places.setdefault(blocks[rank].what, []).append(rank)
    waits = [
        say(subjects.ranks(ranks), f" {phrases.one_or(ranks, 'is', 'are')} in {what}")
        for what, ranks in places.items()
    ]
    return view.verdict(
        code="p2p-deadlock",
        sentence=joined(
            "; ",
            [
                say(
                    subjects.ranks([server]),
                    f" is in {blocks[server].what}, and nobody will send: ",
                    joined(", ", waits[:_SHOWN]),
                ),
                *([say(subjects.ranks(asking), " got an answer there before")] if owes else []),
                *branches.perhaps(exits),
            ],
        ),
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=sure.UNANSWERED if owes else sure.MESSAGES_OUT_OF_COUNT,
        facts=[*view.last_call(server), *view.own_last_lines([server])],
        hint=_ANSWER,
    )


_ANSWER = (
    "Whoever waits for an answer must get one, also when its request is refused or dropped: follow what the "
    "receiving rank does between a receive and its send, and let it answer on each of these ways."
)


def _was_answered(view: JobView, block: Block) -> bool:
    """Whether it has received from this rank at this line before."""
    return block.call is not None and any(
        _call_line(each) == _call_line(block.call) and each.state == "returned"
        for each in view.ranks[block.rank].calls
        if each.frames
    )


def _uneven(view: JobView, circle: list[Block]) -> str:
    """Return the way out if all these calls, from the same lines and with the same peers, have met before.

    Ranks that all send first hang in their first round. So one of them has made a call more, or fewer, than
    its peer has: which one is not known.
    """
    for block in circle:
        calls = view.ranks[block.rank].calls[:-1]
        now = block.call
        if now is None or not any(_call_line(each) == _call_line(now) and each.done for each in calls):
            return ""
    places = phrases.clipped(" and ".join(block.what for block in circle[:2]))
    return (
        "These lines have met their peers before. In this round, one rank has made a send or a receive "
        "more than its peer, or fewer: compare how often each side loops, as for a smaller last batch, "
        f"around {places}."
    )


def _confidence(circle: list[Block], left_out: dict[int, _LeftOut]) -> float:
    if any(its.before > 1 for its in left_out.values()):
        return sure.FEWER_MESSAGES_THAN_BEFORE
    is_of_messages = bool(left_out) or all(block.call for block in circle)
    return sure.MESSAGES_IN_A_CIRCLE if is_of_messages else sure.MIXED_CIRCLE


def _round_trip(circle: list[Block]) -> str:
    """Return '0 → 2 → 0'."""
    return " → ".join(str(block.rank) for block in [*circle, circle[0]])


class _WrongPeer(NamedTuple):
    rank: int
    text: str


def _wrong_peer(view: JobView, circle: list[Block]) -> Optional[_WrongPeer]:
    """Return the one rank that receives from one that has never sent to it, and not from the one that does.

    Only if all of them make the same calls from the same lines. Otherwise a receive that is still to come may
    be the right one.
    """
    lines = []
    for block in circle:
        if block.call is None or not blocked.from_the_first(view, block.rank, block.group):
            return None
        calls = [each for each in view.ranks[block.rank].calls if each.p2p]
        lines.append({(each.op, str(stacks.user_frame(each.frames))) for each in calls})
    if any(each != lines[0] for each in lines):
        return None
    found = []
    for block in circle:
        need = _call(block)
        source = need.peer
        if blocked.way(need) != "recv" or source is None or _has_called(view, source, need, block.rank):
            continue
        for other in circle:
            sent = _call(other)
            to_it = blocked.way(sent) == "send" and sent.peer == block.rank
            if to_it and not _has_called(view, block.rank, sent, other.rank):
                text = (
                    f"rank {block.rank} receives from rank {source}, which never sends to it, and not from "
                    f"rank {other.rank}, which does"
                )
                found.append(_WrongPeer(block.rank, text))
    return found[0] if len(found) == 1 else None


def _has_called(view: JobView, rank: int, need: Collective, whose: int) -> bool:
    """Whether `rank` has ever called the counterpart of what `whose` needs."""
    return rank in view.ranks and any(blocked.serves(each, need, whose) for each in view.ranks[rank].calls)


def _from_the_earliest(circle: list[Block]) -> list[Block]:
    """Return the circle, beginning with the rank that was blocked first if all times are known."""
    if not circle or not all(block.at for block in circle):
        return circle
    first = min(range(len(circle)), key=lambda place: circle[place].at)
    return circle[first:] + circle[:first]


def _tags(view: JobView, circle: list[Block]) -> str:
    """Return how the tags of a send and a receive of two ranks differ; empty if they do not.

    A rank that receives may have begun its send before: of several, it is not known which is meant.
    """
    calls = {block.rank: block.call for block in circle if block.call is not None}
    for rank, call in calls.items():
        peer = -1 if call.peer is None else call.peer
        other = calls.get(peer)
        if other is not None and blocked.way(call) == blocked.way(other) == "recv":
            begun = _begun_sends(view, peer, rank)
            other = begun[0] if len(begun) == 1 else None
        if (
            other is not None
            and other.peer == rank
            and {blocked.way(call), blocked.way(other)} == {"send", "recv"}
        ):
            sent, wanted = (call, other) if blocked.way(call) == "send" else (other, call)
            if None not in (sent.tag, wanted.tag) and sent.tag != wanted.tag:
                return f"the tags differ, {sent.tag} is sent and {wanted.tag} is received"
            if sent.group != wanted.group:
                return "they use different groups"
    return ""


def _begun_sends(view: JobView, rank: int, peer: int) -> list[Collective]:
    """Return the asynchronous sends of a rank to this peer that it has not waited for."""
    calls = view.ranks[rank].calls if rank in view.ranks else []
    return [each for each in calls if each.op == "isend" and each.state == "issued" and each.peer == peer]


class _LeftOut(NamedTuple):
    """A call of the rounds before; how often it came in each of them, and in the last.

    `like`: the ranks that still call it, if the rank has no rounds any more.
    """

    call: Collective
    before: int
    now: int
    like: Sequence[int] = ()

    @property
    def text(self) -> str:
        """'has left out its send to rank 1 (train.py:15)'."""
        what = call_records.described(self.call)
        if self.like:
            still = phrases.one_or(self.like, "does", "do")
            return f"no longer calls {what}, as {phrases.ranks(self.like)} still {still}"
        if self.before == 1:
            return f"has left out its {what}"
        if not self.now:
            return f"has not called {what} in this round, and called it {self.before} times in each before"
        times = phrases.count(self.now, "time")
        return f"called {what} {times} in this round, and {self.before} times in each before"


def _left_out(view: JobView, circle: list[Block]) -> dict[int, _LeftOut]:
    """Return ranks that got to where they are without an operation that the rank before them waits for.

    A round is what a rank calls between two calls of the line in which it is blocked, or between two runs of
    such calls: a stage of a pipeline sends several times before it receives several times. In all rounds but
    the last it has called the operation equally often.
    """
    found: dict[int, _LeftOut] = {}
    for waits, block in zip(circle, [*circle[1:], circle[0]]):
        calls = view.ranks[block.rank].calls
        now = block.call or (calls[-1] if calls and calls[-1].state == "entered" else None)
        if waits.call is None or now is None:
            continue
        serving = [blocked.serves(call, waits.call, waits.rank) for call in calls]
        for by_runs in (False, True):
            *before, last = _rounds(calls, serving, now, by_runs)
            counts = {len(each) for each in before}
            if len(before) >= 2 and len(counts) == 1 and len(last) < max(counts):
                found.setdefault(block.rank, _LeftOut(before[-1][-1], max(counts), len(last)))
    return found


def _ended_before_its_like(view: JobView, circle: list[Block]) -> dict[int, _LeftOut]:
    """Return a rank in a collective that sent, from the line where others still send, to who waits for more.

    So a worker has left its loop while the others, and the server, go on.
    """
    found = {}
    for waits, block in zip(circle, [*circle[1:], circle[0]]):
        if waits.call is None or block.call is not None or len(circle) != 2:
            continue
        served = [
            each for each in view.ranks[block.rank].calls if blocked.serves(each, waits.call, waits.rank)
        ]
        if len(served) < 2 or any(each.group != waits.group for each in served):
            continue
        of_line = {_call_line(each): each for each in served}
        now = {rank: view.ranks[rank].calls[-1:] for rank in view.waiting if rank != block.rank}
        like = [rank for rank, its in now.items() if its and _call_line(its[0]) in of_line]
        if like:
            found[block.rank] = _LeftOut(of_line[_call_line(now[like[0]][0])], len(served), 0, like)
    return found


def _rounds(
    calls: Sequence[Collective], serving: Sequence[bool], now: Collective, by_runs: bool
) -> list[list[Collective]]:
    """Return the calls that serve, by whole round. `by_runs`: a run of calls like `now` is one boundary."""
    rounds: list[list[Collective]] = [[]]
    was_boundary = False
    for call, serves in zip(calls, serving):
        is_boundary = _call_line(call) == _call_line(now)
        if is_boundary and not (by_runs and was_boundary):
            rounds.append([])
        elif serves:
            rounds[-1].append(call)
        was_boundary = is_boundary
    # Calls before the first round are cut off, and the round that begins now has no calls yet.
    return rounds[1:-1] or [[]]


def _call_line(call: Collective) -> tuple[object, ...]:
    frame = stacks.user_frame(call.frames)
    return call.op, call.peer, frame and (frame.file, frame.line)


def _hint(circle: list[Block], differs: bool, begun: bool, left_out: dict[int, _LeftOut]) -> str:
    for rank, its in left_out.items():
        loop = ", or for a loop that it ran fewer times than its peer expects" if its.before > 1 else ""
        return (
            "Every send needs its receive, also in the last round and after an error: look for a branch "
            f"around {call_records.described(its.call)} that rank {rank} did not take this time{loop}."
        )
    calls = [block for block in circle if block.call is not None]
    places = phrases.clipped(" and ".join(block.what for block in calls[:2]))
    if differs:
        return f"A send and its receive need the same tag and the same group: compare {places}."
    ways = {blocked.way(_call(block)) for block in calls}
    if len(calls) == len(circle) and len(ways) == 1 and not begun:
        first, other = ("send", "receive") if ways == {"send"} else ("receive", "send")
        return (
            f"All of them {first} first, and none gets to its {other}. Let every second rank {other} first, "
            f"or give both to dist.batch_isend_irecv in one call, in place of {places}."
        )
    block = calls[0]
    peer = _call(block).peer
    other = "send to" if blocked.way(_call(block)) == "recv" else "recv from"
    return (
        f"{block.what} needs a {other} rank {block.rank} on rank {peer}, which skips it or comes to it "
        f"too late. Every send needs its receive in the same order on both sides: look for a branch around "
        f"{places} that one of them takes alone."
    )


def _call(block: Block) -> Collective:
    assert block.call is not None
    return block.call


# --- p2p-deadlock: a message that is larger than its receive, in shape or in dtype
#
# Gloo compares bytes (gloo/transport/tcp/pair.cc: "op.preamble.length <= op.nbytes. 32 vs 16"), and ends the
# receiver's process. A message that is smaller than its receive passes silently. NCCL compares nothing: the
# receive waits for ever (NCCL's documentation demands equal counts and dtypes on both sides).


_TOO_LARGE = re.compile(r"preamble\.length <= \w+\.nbytes\. (\d+) vs (\d+)")
_OPEN = frozenset(["entered", "issued", "waiting", "raised"])
_BITS = re.compile(r"\d+")
_NAMED = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "short": 2,
    "half": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
}
"""Bytes of the dtypes whose names, in the flight recorder, have no number."""
_Pair = tuple[Collective, Collective]
"""A send and its receive."""


def message_too_large(view: JobView) -> Optional[Verdict]:
    """Return the verdict if the ring has one receive and one send of exactly the bytes that Gloo reports."""
    for number, rank in view.ranks.items():
        found = _TOO_LARGE.search("\n".join(causes.spoken_by(view, number)))
        if found is None:
            continue
        pair = _pair(view, rank, int(found[1]), int(found[2]))
        if pair is not None:
            return _size_verdict(view, number, *pair)
    return None


def message_differs_in_nccl(view: JobView) -> Optional[Verdict]:
    """Return the verdict on an NCCL receive that is not done, and whose size is not that of its send."""
    for number, rank in view.ranks.items():
        need = blocked.queued(rank)
        if need is None or blocked.way(need) != "recv":
            continue
        receives, sends = blocked.in_order(view, number, need) or ([], [])
        if sends and len(sends) == len(receives) and _bytes(sends[-1]) != _bytes(need):
            return _size_verdict(view, number, sends[-1], need)
    return None


def _pair(view: JobView, rank: RankEvidence, sent: int, wanted: int) -> Optional[_Pair]:
    """Return the send of `sent` bytes and the open receive of `wanted` bytes."""
    receives = [
        call
        for call in rank.calls
        if call.p2p and blocked.way(call) == "recv" and call.state in _OPEN and _bytes(call) == wanted
    ]
    need = receives[0] if len(receives) == 1 else None
    if need is None or need.peer is None or need.peer not in view.ranks:
        return None
    theirs = [call for call in view.ranks[need.peer].calls if blocked.serves(call, need, rank.rank)]
    matching = [call for call in theirs if _bytes(call) == sent]
    return (matching[-1], need) if matching else None


def _bytes(call: Collective) -> int:
    """Return the bytes of a call's tensors; 0 if its shape or its dtype is not known."""
    if len(call.dtypes) != 1:
        return 0
    dtype = call.dtypes[0]
    bits = _BITS.search(dtype)  # the first number of 'float32', 'bfloat16', 'float8_e4m3fn'
    size = int(bits[0]) // 8 if bits else _NAMED.get(dtype.lower(), 0)
    return size * sum(math.prod(shape) for shape in call.sizes)


def _size_verdict(view: JobView, receiver: int, send: Collective, receive: Collective) -> Verdict:
    assert receive.peer is not None
    sender = receive.peer
    ranks = sorted([sender, receiver])
    sent, wanted = _tensor(send), _tensor(receive)
    sender_site, receiver_site = (phrases.at(stacks.user_frame(call.frames)) for call in (send, receive))
    bigger = "larger" if _bytes(send) > _bytes(receive) else "smaller"
    sending, receiving = call_records.described(send), call_records.described(receive)
    return view.verdict(
        code="p2p-deadlock",
        sentence=f"rank {sender} sent {sent} to rank {receiver}{sender_site}, which receives "
        f"{wanted}{receiver_site}: the message is {bigger} than its receive",
        ranks=ranks,
        victims=view.victims_of(ranks),
        confidence=sure.MESSAGE_SIZES,
        facts=[
            f"rank {sender}: {sending}, {sent}, {_bytes(send)} bytes",
            f"rank {receiver}: {receiving}, {wanted}, {_bytes(receive)} bytes",
        ],
        hint="A receive needs the shape and the dtype of its send, and takes the messages of one rank in "
        f"order: compare {sending} and {receiving}.",
    )


def _tensor(call: Collective) -> str:
    """'[8] float32'."""
    return " ".join([*(str(size) for size in call.sizes), *call.dtypes])


# --- async-not-waited: a rank began an operation, never waited for it, and ended too early
#
# As soon as the program is over, Python frees the work and the process closes its connections. The hook's
# ring shows whether `wait` was called, and which operation of a peer lacked this one.


def async_not_waited(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a rank that ended well with an operation still open that a peer needs."""
    for peer in left_behind(view):
        calls = view.ranks[peer].calls
        if not calls or calls[-1].state not in ("entered", "waiting", "raised"):
            continue
        need = calls[-1]
        for rank in [need.peer] if need.p2p else view.members.get(need.group, []):
            if rank is None or rank not in view.ranks or not _ended_well(view, rank):
                continue
            call = _open_call(view, peer, need, rank)
            if call is not None:
                return _open_verdict(view, rank, call, peer, need)
    return None


def _ended_well(view: JobView, rank: int) -> bool:
    end = view.ranks[rank].exit
    return end is not None and end.code == 0


def _open_call(view: JobView, peer: int, need: Collective, rank: int) -> Optional[Collective]:
    """Return the call of `rank` that belongs to what `peer` needs, if it was issued and never waited for."""
    if not need.p2p:
        mine = [
            call
            for call in view.ranks[rank].calls
            if not call.p2p and (call.group, call.seq, call.op) == (need.group, need.seq, need.op)
        ]
    elif blocked.from_the_first(view, peer, need.group):
        mine = [call for call in view.ranks[rank].calls if blocked.serves(call, need, peer)]
        wanted = [call for call in view.ranks[peer].calls if _is_like(call, need)]
        if -1 in {call.peer for call in [*mine, *wanted]}:
            return None
        if blocked.from_the_first(view, rank, need.group):
            mine = mine[: len(wanted)] if len(mine) >= len(wanted) else []  # they are matched in order
        elif any(call.state != "issued" for call in mine):
            return None  # only its last calls are known, and it has waited for some
    else:
        return None
    return mine[-1] if mine and mine[-1].state == "issued" else None


def _is_like(call: Collective, need: Collective) -> bool:
    direction = blocked.way(call) if call.p2p else ""
    return (direction, call.group, call.peer, call.tag) == (
        blocked.way(need),
        need.group,
        need.peer,
        need.tag,
    )


def _open_verdict(view: JobView, rank: int, call: Collective, peer: int, need: Collective) -> Verdict:
    place, needs = call_records.described(call), call_records.described(need)
    return view.verdict(
        code="async-not-waited",
        sentence=f"rank {rank} began {place}, never waited for it, and ended (exit code 0): rank {peer} "
        f"needs it in {needs}",
        ranks=[rank],
        victims=view.victims_of([rank]),
        confidence=sure.NOT_WAITED_FOR,
        facts=[
            f"rank {rank}'s last call of its kind is {place}, and its `wait` was not called",
            *(f"rank {number} is in {view.locations[number]}" for number in view.waiting[:4]),
        ],
        hint=f"Keep the work that {call.op} returns, and call its wait() before the program ends or the "
        f"tensor is used again: work = dist.{call.op}(...); work.wait().",
    )
