"""p2p-deadlock: ranks wait in a circle for one another's messages, or for a message that is never sent.

Sends of Gloo wait for their receive as receives wait for their send. A circle of ranks that are all blocked
cannot open: each of them would have to go on first.
"""

from __future__ import annotations

from typing import Optional

from ddplaunch.agent.contract import Collective, Verdict
from ddplaunch.agent.diagnosis.run import blocked, call_records, stacks, wait_cycle
from ddplaunch.agent.diagnosis.run.blocked import Block
from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.agent.system import phrases

_SHOWN = 6
"""Ranks of a circle that a sentence names."""


def deadlock(view: JobView) -> Optional[Verdict]:
    """Return the verdict on a circle with at least one send or receive in it."""
    blocks = blocked.find(view)
    ranks = wait_cycle.find({rank: block.awaits for rank, block in blocks.items()})
    circle = _from_the_earliest([blocks[rank] for rank in ranks])
    if not any(block.call for block in circle):
        return None
    differs = _tags(circle)
    missing = _left_out(view, circle)
    culprits = sorted(missing or (block.rank for block in circle))
    round_trip = " → ".join(str(block.rank) for block in [*circle, circle[0]])
    parts = [f"rank {block.rank} is in {block.what}" for block in circle[:_SHOWN]]
    parts += ["and so on"] if len(circle) > _SHOWN else []
    left = [
        f"rank {rank} has left out its {call_records.described(call)}"
        for rank, call in sorted(missing.items())
    ]
    reason = "".join(f": {each}" for each in [differs, *left[:2]] if each)
    return view.verdict(
        code="p2p-deadlock",
        sentence=f"ranks wait in a circle: {round_trip}: {', '.join(parts)}{reason}",
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=0.95 if missing or all(block.call for block in circle) else 0.8,
        facts=[
            *(
                f"rank {block.rank} cannot go on without rank {after.rank}"
                for block, after in zip(circle[:_SHOWN], [*circle[1:], circle[0]])
            ),
            *(
                f"rank {rank} called {call_records.described(call)} in each of the rounds before"
                for rank, call in sorted(missing.items())
            ),
            *view.whereabouts([rank for rank in view.waiting if rank not in culprits])[:4],
        ],
        hint=_hint(circle, bool(differs), missing),
    )


def _from_the_earliest(circle: list[Block]) -> list[Block]:
    """Return the circle from the rank that was blocked first, where all times are known."""
    if not circle or not all(block.at for block in circle):
        return circle
    first = min(range(len(circle)), key=lambda place: circle[place].at)
    return circle[first:] + circle[:first]


def _tags(circle: list[Block]) -> str:
    """Return how the tags of a send and a receive of two ranks differ; empty where they do not."""
    calls = {block.rank: block.call for block in circle if block.call is not None}
    for rank, call in calls.items():
        other = calls.get(call.peer if call.peer is not None else -1)
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


def _left_out(view: JobView, circle: list[Block]) -> dict[int, Collective]:
    """Return ranks that have come to where they are without an operation that the one before them waits for.

    Rounds are what a rank calls from one call of the line in which it is blocked to the next. In all rounds
    but the last it has called the operation equally often; the dict has its call of the round before.
    """
    found = {}
    for waits, block in zip(circle, [*circle[1:], circle[0]]):
        calls = view.ranks[block.rank].calls
        now = block.call or (calls[-1] if calls and calls[-1].state == "entered" else None)
        if waits.call is None or now is None:
            continue
        need = waits.call
        rounds: list[list[Collective]] = [[]]
        for call in calls:
            if _line(call) == _line(now):
                rounds.append([])
            elif blocked.serves(call, need, waits.rank):
                rounds[-1].append(call)
        # Calls before the first round are cut off, and the round that now begins has none yet.
        *before, last = rounds[1:-1] or [[]]
        counts = {len(each) for each in before}
        if len(before) >= 2 and len(counts) == 1 and len(last) < max(counts):
            found[block.rank] = before[-1][-1]
    return found


def _line(call: Collective) -> tuple[object, ...]:
    frame = stacks.user_frame(call.frames)
    return call.op, call.peer, frame and (frame.file, frame.line)


def _hint(circle: list[Block], differs: bool, missing: dict[int, Collective]) -> str:
    for rank, left in missing.items():
        return (
            "Every send needs its receive, also in the last round and after an error: look for a branch "
            f"around {call_records.described(left)} that rank {rank} did not take this time."
        )
    calls = [block for block in circle if block.call is not None]
    places = phrases.clipped(" and ".join(block.what for block in calls[:2]))
    if differs:
        return f"A send and its receive need the same tag and the same group: compare {places}."
    ways = {blocked.way(_call(block)) for block in calls}
    if len(calls) == len(circle) and len(ways) == 1:
        first, other = ("send", "receive") if ways == {"send"} else ("receive", "send")
        return (
            f"All of them {first} first, and none gets to its {other}. Let every second rank {other} first, "
            f"or give both to dist.batch_isend_irecv in one call, in place of {places}."
        )
    block = calls[0]
    peer = _call(block).peer
    other = "send to" if blocked.way(_call(block)) == "recv" else "recv from"
    return (
        f"{block.what} needs a {other} rank {block.rank} on rank {peer}, which goes past it or comes to it "
        f"too late. Every send needs its receive in the same order on both sides: look for a branch around "
        f"{places} that one of them takes alone."
    )


def _call(block: Block) -> Collective:
    assert block.call is not None
    return block.call
