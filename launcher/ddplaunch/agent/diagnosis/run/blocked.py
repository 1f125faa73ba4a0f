"""The operations in which the ranks of a stalled job are blocked, and the ranks that they need to go on.

Point-to-point operations are known from the hook's ring, collectives from torch's flight recorder. With NCCL
the recorder has both: there a call returns at once, and the GPU waits. An edge is drawn only if both sides
are known: a rank that is not blocked may still come, and no rank waits for one that may have sent already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Collective, Frame, RankEvidence, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run import branches, call_order, call_records, stacks
from ddplaunch.agent.diagnosis.run.view import IN_COLLECTIVE, JobView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.saying import Sayable, Text, joined, say, spelled

_FOLLOWED = 16
"""The most missing ranks of a collective to which edges are drawn: a circle needs only one of them."""


@dataclass(frozen=True)
class Block:
    """The operation that holds `rank`, and the ranks that it waits for. `call`: if it is point-to-point."""

    rank: int
    what: str  # 'recv from rank 1 (train.py:30)', 'barrier 9 (train.py:31)'
    awaits: tuple[int, ...]
    group: str
    number: int = 0
    call: Optional[Collective] = None
    at: float = 0.0  # of the call; 0: unknown


def find_blocks(view: JobView) -> dict[int, Block]:
    """Return the blocked ranks, without those for which no record shows whom they wait for."""
    found: dict[int, Block] = {}
    lacking: dict[tuple[str, int], list[int]] = {}  # the ranks it lacks; thousands may wait in one
    for rank in view.waiting:
        if is_held(view, rank):
            block = _message(view, rank) or _meeting(view, rank, lacking)
            if block is not None:
                found[rank] = block
    return found


def is_held(view: JobView, rank: int) -> bool:
    """Whether nothing in this rank goes on: it waits, and no thread of its own code could call more.

    One that waits for the end of the thread in the collective, or for what that would give it, cannot.
    A collective that was only begun does not hold a rank, whatever its counters say.
    """
    evidence = view.ranks[rank]
    if view.locations[rank].kind != IN_COLLECTIVE:
        return False
    own = [
        each
        for each in evidence.stacks
        if not each.main and stacks.is_own(each.frames) and not stacks.idles_in_loop(each.frames)
    ]
    if not all(each.on_lock and stacks.waits_for_thread(each.frames) for each in own):
        return False
    waits = stacks.collective(stacks.main(evidence.stacks)) or call_records.waited_for(evidence)
    return bool(waits) or all(call.p2p or call.state != "issued" for call in evidence.calls)


def way(call: Collective) -> str:
    """'send' or 'recv'."""
    return "recv" if "recv" in call.op else "send"


def _message(view: JobView, rank: int) -> Optional[Block]:
    """Return the block of a rank in a send or a receive."""
    evidence = view.ranks[rank]
    named = stacks.collective(stacks.main(evidence.stacks))
    call = None if named else call_records.waited_for(evidence)
    if call is None and evidence.calls and evidence.calls[-1].op == named:
        call = evidence.calls[-1] if evidence.calls[-1].state == "entered" else None
    begun = queued(evidence)
    call = begun or call or evidence.stands_in
    if call is None or not call.p2p or call.peer is None:
        return None
    site = stacks.user_frame(begun.frames) if begun else view.locations[rank].site
    what = f"{call_records.named(call)}{phrases.at(site)}{' on its GPU' if begun else ''}"
    matches = _may_match_in_nccl if begun else _may_match
    needs = (call.peer,) if call.peer in view.ranks and not matches(view, rank, call) else ()
    return Block(rank, what, needs, call.group, call=call, at=call.at)


def queued(evidence: RankEvidence) -> Optional[Collective]:
    """Return the NCCL send or receive that has returned, but for which all later calls wait on the GPU."""
    undone = [entry for entry in evidence.collectives if not entry.done]
    first = min(undone, key=lambda entry: entry.at, default=None)
    return first if evidence.backend == "nccl" and first is not None and first.p2p else None


def in_order(
    view: JobView, rank: int, call: Collective
) -> Optional[tuple[list[Collective], list[Collective]]]:
    """Return this rank's recorded calls like `call`, up to that one, and what the peer has called for them.

    NCCL matches them in order. None: not all messages of both ranks are recorded.
    """
    if call.peer is None or call.peer not in view.ranks:
        return None
    mine, theirs = view.ranks[rank].collectives, view.ranks[call.peer].collectives
    if not (_is_whole(mine, call.group) and _is_whole(theirs, call.group)):
        return None
    own = [each for each in mine if _pairs(each, way(call), call, call.peer) and each.seq <= call.seq]
    return own, [each for each in theirs if serves(each, call, rank)][: len(own)]


def _may_match_in_nccl(view: JobView, rank: int, call: Collective) -> bool:
    """Whether the peer has begun as many calls of the other kind, or not all of them are known."""
    pairs = in_order(view, rank, call)
    return pairs is None or len(pairs[0]) == len(pairs[1])


def _may_match(view: JobView, rank: int, call: Collective) -> bool:
    """Whether the peer has called what this operation needs: then something else blocks them."""
    assert call.peer is not None
    mine = [each for each in view.ranks[rank].calls if _pairs(each, way(call), call, call.peer)]
    peer = view.ranks[call.peer]
    known = [*peer.calls, *([peer.stands_in] if peer.stands_in else [])]
    theirs = [each for each in known if serves(each, call, rank)]
    everything = from_the_first(view, rank, call.group) and from_the_first(view, call.peer, call.group)
    if everything and -1 not in {each.peer for each in [*mine, *theirs]}:
        return len(theirs) >= len(mine)
    return any(each.state in ("entered", "issued", "waiting") for each in theirs)


def serves(call: Collective, need: Collective, rank: int) -> bool:
    """Whether `call`, as far as is known, is the counterpart that `rank` needs."""
    return _pairs(call, "send" if way(need) == "recv" else "recv", need, rank)


def _pairs(call: Collective, direction: str, other: Collective, peer: int) -> bool:
    same_tag = None in (call.tag, other.tag) or call.tag == other.tag
    return (
        call.p2p
        and way(call) == direction
        and call.peer in (peer, -1)
        and call.group == other.group
        and same_tag
        and call.state != "raised"
    )


def from_the_first(view: JobView, rank: int, group: str) -> bool:
    """Whether all point-to-point operations of this rank in this group are known."""
    calls = view.ranks[rank].calls
    return any(call.p2p and call.group == group for call in calls) and _is_whole(calls, group)


def _is_whole(calls: list[Collective], group: str) -> bool:
    """Whether these include all of the group's point-to-point operations since the first, if any."""
    numbers = [call.seq for call in calls if call.p2p and call.group == group]
    return numbers == list(range(1, len(numbers) + 1))


def _meeting(view: JobView, rank: int, known: dict[tuple[str, int], list[int]]) -> Optional[Block]:
    """Return the block of a rank in a collective whose number its counters show."""
    location = view.locations[rank]
    unfinished = [each for each in view.ranks[rank].groups if each.enqueued > each.completed]
    if len(unfinished) != 1:  # its stack does not tell in which of them it is
        return None
    group, number = unfinished[0].name, unfinished[0].completed + 1
    lacking = known.get((group, number))
    if lacking is None:
        lacking = [other for other in view.members.get(group, []) if _lacks(view, other, group, number)]
        known[group, number] = lacking
    awaits = [other for other in lacking if other != rank]
    if not awaits:
        return None
    entries = [
        each.at
        for each in view.ranks[rank].collectives
        if each.group == group and each.seq == number and not each.p2p
    ]
    return Block(
        rank,
        f"{location.what or 'collective'} {number}{phrases.at(location.site)}",
        tuple(awaits[:_FOLLOWED]),
        group,
        number,
        at=max(entries, default=0.0),
    )


def _lacks(view: JobView, rank: int, group: str, number: int) -> bool:
    if rank not in view.ranks:
        return False
    known = {each.name: each.enqueued for each in view.ranks[rank].groups}
    return group in known and (known[group] < number or _is_held_before(view.ranks[rank], group, number))


def _is_held_before(evidence: RankEvidence, group: str, number: int) -> bool:
    """Whether its GPU waits for a message that the rank has called before this collective."""
    begun = queued(evidence)
    return begun is not None and any(
        begun.at < each.at for each in evidence.collectives if (each.group, each.seq) == (group, number)
    )


def who(view: JobView, group: str) -> Text:
    """'the default group', 'the group of ranks 0 and 1', or 'group 2 (ranks 0 and 1)' if two have these."""
    members = view.members.get(group, [])
    if group == "0":
        return say("the default group")
    same = [name for name, its in view.members.items() if its == members and name != "0"]
    if len(same) > 1:
        return say(f"group {group} (", subjects.ranks(members), ")")
    return say("the group of ", subjects.ranks(members))


# --- circles in which each rank waits for the next


def find_circle(waits: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the first of `find_circles`; empty: there is none."""
    return next(find_circles(waits), [])


def find_circles(waits: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Yield circles without a rank in common: each rank waits for the next, and the last for the first.

    `waits`: rank -> the ranks without which it cannot go on. A circle begins with the smallest of its ranks.

    A depth-first search that keeps its path in a list: a chain of waits may be as long as the job has ranks,
    which is too long for recursion. A rank from which no circle was found is skipped when another rank leads
    to it, and so is one of a circle, so each wait is looked at once.
    """
    passed: set[int] = set()
    for first in sorted(waits):
        path: list[int] = []
        branches = [iter([first])]
        while branches:
            rank = next(branches[-1], None)
            if rank is None:
                branches.pop()
                if path:
                    passed.add(path.pop())
            elif rank in path:
                at = path.index(rank)
                circle = path[at:]
                passed.update(circle)
                del path[at:], branches[at + 1 :]
                start = circle.index(min(circle))
                yield circle[start:] + circle[:start]
            elif rank in waits and rank not in passed:
                path.append(rank)
                branches.append(iter(waits[rank]))


# --- group-partial: a collective lacks ranks of its group that are blocked in another group
#
# Groups share ranks, and a rank is in one collective at a time. If the collectives of two groups are called
# in different orders, or one of them by only a part of its group, each waits for ranks that the other holds.


_MAKES_GROUP = re.compile(r"new_(sub)?groups?|split_group")
_SHOWN = 4
"""The most groups of a circle that a sentence names."""


def groups_wait(view: JobView) -> Optional[Verdict]:
    """Return the verdict on collectives of several groups, each of which waits for ranks of the next."""
    blocks = find_blocks(view)
    circle = [blocks[rank] for rank in find_circle({rank: each.awaits for rank, each in blocks.items()})]
    if not circle or any(block.call for block in circle):
        return None
    camps: dict[tuple[str, int], list[Block]] = {}
    for block in [*circle, *(blocks[rank] for rank in sorted(blocks))]:
        key = (block.group, block.number)
        if key in {(each.group, each.number) for each in circle} and block not in camps.get(key, []):
            camps.setdefault(key, []).append(block)
    ordered = sorted(camps.values(), key=lambda camp: min(block.at for block in camp))
    culprits = _culprits(view, ordered)
    parts: list[Sayable] = [
        say(
            f"{camp[0].what} of ",
            who(view, camp[0].group),
            " has ",
            subjects.ranks(_ranks(camp)),
            " and lacks ",
            subjects.ranks(camp[0].awaits),
        )
        for camp in ordered[:_SHOWN]
    ]
    parts += ["and so on"] if len(ordered) > _SHOWN else []
    round_trip = " → ".join(str(block.rank) for block in [*circle, circle[0]])
    tie = len(culprits) >= sum(map(len, ordered))
    apart = _first_apart(view) if tie else None
    if apart is not None:
        tie, culprits = False, sorted(apart.few)
        parts.append(apart.text)
    made = branches.find_of(view, apart.most, apart.few) if apart is not None else None
    sides = _two_lines(view, sorted(block.rank for block in circle)) if made is None else None
    choice = branches.find(view, *sides) if sides else made
    exits = [] if tie or not sides else branches.either_past(view, *sides, guards=choice is None)
    exits += choice.skips if choice is not None and not tie else []
    begin = "and the branches around them." if choice is None else f"and begin with {choice.all_places}."
    compared = f"compare {phrases.clipped(' and '.join(camp[0].what for camp in ordered[:2]))}, {begin}"
    way = branches.stands(view, choice) if made is None else branches.called(view, made)
    loop = _common_loop(view, [block.rank for block in circle])
    if loop:
        parts.append(f"the calls come from one line in {loop}")
        compared = f"let all ranks go through {loop} in the same order."
    return view.verdict(
        code="group-partial",
        sentence=say(
            "groups wait for one another: ",
            joined("; ", [*parts, *way, *branches.perhaps(exits)]),
        ),
        ranks=culprits,
        victims=[rank for rank in view.waiting if rank not in culprits],
        confidence=sure.GROUPS_IN_A_TIE if tie else _sure_of(apart),
        facts=[
            f"ranks wait in a circle: {round_trip}",
            *(
                f"rank {block.rank} is in {block.what} of {spelled(who(view, block.group))}"
                for block in circle[:8]
            ),
            *([] if tie else view.own_last_lines(culprits)),
        ],
        hint="All ranks of a group must call its collectives, and ranks that share two groups must call them "
        f"in the same order: {compared}",
    )


class _Apart(NamedTuple):
    """Ranks whose calls, in the order of all their groups together, part from those of most others."""

    few: dict[int, Optional[Collective]]  # each with its call
    most: dict[int, Optional[Collective]]
    text: Text


def _sure_of(apart: Optional[_Apart]) -> float:
    return sure.GROUPS_IN_A_CIRCLE if apart is None else sure.GROUPS_APART


def _first_apart(view: JobView) -> Optional[_Apart]:
    """Return who first called something else than most, counted over all groups.

    Ranks of one program call from the same lines in the same order, each in its own groups of a mesh. In a
    circle of such groups nobody is in the minority, but one has left the common order first. The numbers of
    calls are those of the whole program, so calls that are no longer kept are only left out.
    """
    orders = {rank: _in_order(view.ranks[rank]) for rank in view.world if rank in view.ranks}
    if len(orders) < max(len(view.world), 3) or not all(orders.values()):
        return None
    agreed = 0
    first, last = max(min(its) for its in orders.values()), min(max(its) for its in orders.values())
    for number in range(first, last + 1):
        camps: dict[tuple[str, str, int], dict[int, Optional[Collective]]] = {}
        for rank, its in orders.items():
            camps.setdefault(call_records.call_line(its[number]), {})[rank] = its[number]
        most = max(camps.values(), key=len)
        if len(camps) == 1:
            agreed += 1
        elif len(camps) > 2 or agreed < _AGREED or 2 * len(most) <= len(orders):
            return None
        else:
            (few,) = [camp for camp in camps.values() if camp is not most]
            own, others = (_site(orders[next(iter(camp))][number]) for camp in (few, most))
            first_out = phrases.one_or([*few], "was the first", "were the first")
            said = say(
                subjects.ranks([*few]),
                f" {first_out} out of order, and called {own} where the others called {others}",
            )
            return _Apart(few, most, said)
    return None


_AGREED = 4
"""Calls that all ranks must have made in one order before they part."""


def _site(call: Collective) -> str:
    return f"{call.op}{phrases.at(stacks.user_frame(call.frames))}"


def _in_order(rank: RankEvidence) -> dict[int, Collective]:
    """Return its last calls by their number among all of the program; empty if that is not known."""
    made = sum(each.first - 1 + len(each.calls) for each in rank.sequences if each.group)
    if not made or any(call.p2p or not call.frames for call in rank.calls):
        return {}
    return {made - back: call for back, call in enumerate(reversed(rank.calls))}


def _common_loop(view: JobView, ranks: Sequence[int]) -> str:
    """Return the loop that all these ranks are in, at one line of the program; else "".

    Of several, in this function and its callers, that one is meant whose order comes from data.
    """
    ways = {tuple(stacks.users(stacks.main(view.ranks[rank].stacks))) for rank in ranks}
    way = ways.pop() if len(ways) == 1 else ()
    loops = [loop for loop in (branches.loop_around(view, ranks[0], line) for line in way) if loop]
    return next((loop for loop in loops if _BY_DATA.search(loop)), "".join(loops[:1]))


_BY_DATA = re.compile(r"\b(sorted|set)\(")


def _two_lines(view: JobView, ranks: list[int]) -> Optional[tuple[branches.Camp, branches.Camp]]:
    """Return the ranks at each of two lines of the program, the fewer first; None: at more lines, or one."""
    lines: dict[Optional[Frame], dict[int, Optional[Collective]]] = {}
    for rank in ranks:
        lines.setdefault(view.locations[rank].site, {})[rank] = None
    if len(lines) != 2 or None in lines:
        return None
    few, many = sorted(lines.values(), key=len)
    return few, many


def _culprits(view: JobView, camps: list[list[Block]]) -> list[int]:
    """Return the smaller of two camps with equal members; otherwise all that one holds and another lacks.

    A group may have sisters, as those of each column of a mesh: ranks that stand at a camp's line in a sister
    group are on its side. Two sides with equally many ranks are named both.
    """
    if len(camps) == 2 and not view.unseen:
        first, second = (view.members.get(camp[0].group) for camp in camps)
        if first == second and len(camps[0]) != len(camps[1]):
            return _ranks(min(camps, key=len))
        sides = [_at_its_line(view, camp) for camp in camps]
        if first != second and set(sides[0]).isdisjoint(sides[1]) and len(sides[0]) == len(sides[1]):
            return sorted([*sides[0], *sides[1]])
    lacking = {rank for camp in camps for rank in camp[0].awaits}
    return sorted(lacking & {rank for camp in camps for rank in _ranks(camp)})


def _at_its_line(view: JobView, camp: list[Block]) -> list[int]:
    """Return the waiting ranks at the line of this camp, in its group or in another."""
    site = view.locations[camp[0].rank].site
    return [rank for rank in view.waiting if site is not None and view.locations[rank].site == site]


def _ranks(camp: list[Block]) -> list[int]:
    return sorted(block.rank for block in camp)


def new_group_partial(view: JobView) -> Optional[Verdict]:
    """Return the verdict if only some ranks are in `new_group`, which all ranks of the job must call."""
    inside = [rank for rank in view.waiting if _MAKES_GROUP.fullmatch(view.locations[rank].what)]
    lacking = [rank for rank in view.waiting if rank not in inside]
    if not inside or view.waiting != view.alive or view.unseen:
        return None
    skipped = _skipped_new_group(view, inside)
    if skipped is not None or not lacking:
        return skipped
    passed = _passed_new_group(view, inside, lacking)
    lacking = [rank for rank in lacking if rank not in passed]
    few = bool(passed) and len(lacking) < len(inside) + len(passed)
    where = view.places(lacking)[:3]
    choice = branches.find(view, dict.fromkeys(inside), dict.fromkeys(lacking))
    return view.verdict(
        code="group-partial",
        sentence=say(
            f"{view.locations[inside[0]]} has ",
            subjects.ranks(inside),
            " and lacks ",
            subjects.ranks(lacking),
            ": ",
            joined("; ", [*where, *branches.stands(view, choice)]),
        ),
        ranks=lacking,
        victims=sorted([*inside, *passed]),
        confidence=sure.NEW_GROUP_SKIPPED if few else sure.NEW_GROUP_LACKS,
        facts=view.counts(),
        hint=_call_it_everywhere(choice),
    )


def _passed_new_group(view: JobView, inside: Sequence[int], others: Sequence[int]) -> list[int]:
    """Return those of the others that have called it as often: it returns at once to ranks outside the group.

    Empty if that leaves none, or if it is not known how often those in it have called it.
    """
    made = {
        rank: len(each.calls)
        for rank in [*inside, *others]
        for each in view.ranks[rank].sequences
        if each.group == ""
    }
    times = {made.get(rank) for rank in inside}
    passed = [rank for rank in others if {made.get(rank)} == times] if None not in times else []
    return passed if len(passed) < len(others) else []


def _call_it_everywhere(choice: Optional[branches.Choice]) -> str:
    begin = f" ({choice.all_places})" if choice is not None else ""
    return (
        "Every rank of the job must call new_group, also those outside the group: take it out of the branch "
        f"on the rank{begin}."
    )


def _skipped_new_group(view: JobView, inside: Sequence[int]) -> Optional[Verdict]:
    """Return the verdict if ranks left out an earlier call of `new_group` than the one that they wait in.

    torch names a group by how many there were before, and its members meet under this name
    (distributed_c10d.py, _process_group_name). After a call that some left out, all later groups have other
    names there.
    """
    histories = call_order.histories_of(view, "")
    if sorted(rank for each in histories for rank in each.ranks) != view.alive:
        return None
    if not all(call_order.lined(each.calls) for each in histories):
        return None
    # As far as all have called: those that have called less may come yet.
    for number in range(1, min(max(each.calls) for each in histories) + 1):
        camps = call_order.camps_at(histories, number)
        if len(camps) > 1:
            return _parted_in_new_group(view, number, [*camps.values()], inside)
    return _fewer_new_groups(view, histories) if inside == view.alive else None


def _fewer_new_groups(view: JobView, histories: list[call_order.CallHistory]) -> Optional[Verdict]:
    """Return the verdict if all ranks are in `new_group`, some of them for fewer times than the others.

    All calls came from the same lines, as where one function of the program makes all groups. A group that
    only those have who called it more often may be what the others left out.
    """
    ranks_by_calls: dict[int, list[int]] = {}
    for each in histories:
        ranks_by_calls.setdefault(len(each.calls), []).extend(each.ranks)
    if len(ranks_by_calls) != 2:
        return None
    (fewer, who_not), (more, who_did) = sorted(ranks_by_calls.items())
    known = {group.name for rank in who_not for group in view.ranks[rank].groups}
    extra = {
        group.name: group for rank in who_did for group in view.ranks[rank].groups if group.name not in known
    }
    made: list[Sayable] = []
    if len(extra) == 1 and more == fewer + 1:
        (group,) = extra.values()
        used = _first_line(view, who_did[0], group.name)
        why = branches.exits(view, who_did[0], used) if used is not None else []
        behind = f", behind {' and '.join(why)}" if why else ""
        made = [
            say("; what they left out made the group of ", subjects.ranks(group.ranks)),
            f", used in {phrases.place(used)}{behind}" if used is not None else "",
        ]
    few = min(sorted(who_not), sorted(who_did), key=len)
    return view.verdict(
        code="group-partial",
        sentence=say(
            subjects.ranks(sorted(who_not)),
            f" {phrases.one_or(who_not, 'is', 'are')} in call {fewer} of {view.locations[few[0]]}, ",
            subjects.ranks(sorted(who_did)),
            f" in call {more}: groups have other names there",
            *made,
        ),
        ranks=few,
        victims=[rank for rank in view.alive if rank not in few],
        confidence=sure.NEW_GROUP_TIE if len(who_not) == len(who_did) else sure.NEW_GROUP_SKIPPED,
        facts=view.counts(),
        hint=_call_it_everywhere(None),
    )


def _first_line(view: JobView, rank: int, group: str) -> Optional[Frame]:
    """Return the line of the first call of a group that is known."""
    return next(
        (each.frames[0] for each in view.ranks[rank].calls if each.group == group and each.frames), None
    )


def _parted_in_new_group(
    view: JobView, number: int, camps: list[list[call_order.CallHistory]], inside: Sequence[int]
) -> Optional[Verdict]:
    if len(camps) != 2:
        return None
    less, more = sorted(camps, key=lambda camp: max(len(each.calls) for each in camp))
    if {len(each.calls) for each in less} & {len(each.calls) for each in more}:
        return None  # as many calls, from other lines: which one was left out is not known
    left_out = more[0].calls[number]
    who_not, who_did = (sorted(rank for each in camp for rank in each.ranks) for camp in (less, more))
    choice = branches.find_of(view, dict.fromkeys(who_did, left_out), dict.fromkeys(who_not))
    # Either camp may be wrong: whoever left out a call that all need, or whoever made one that none needs.
    few = min(who_not, who_did, key=len)
    return view.verdict(
        code="group-partial",
        sentence=say(
            subjects.ranks(who_did),
            f" called new_group{phrases.at(left_out.frames[0])}, ",
            subjects.ranks(who_not),
            " did not: since then groups have other names there, and ",
            subjects.ranks(inside),
            f" {phrases.one_or(inside, 'waits', 'wait')} in {view.locations[inside[0]]}",
            *(say("; ", each) for each in branches.called(view, choice)),
        ),
        ranks=few,
        victims=[rank for rank in inside if rank not in few],
        confidence=sure.NEW_GROUP_TIE if len(who_not) == len(who_did) else sure.NEW_GROUP_SKIPPED,
        facts=view.counts(),
        hint=_call_it_everywhere(choice),
    )
