"""Groups with ranks in common whose collectives wait for one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import C10D, NOW, TORCH, in_collective, in_evaluate, job, only, rank, stack
from tests.agent.diagnosis.run.build_blocked import call, meeting
from tests.agent.diagnosis.run.build_branches import FILE, source

from ddplaunch.agent.contract import CallSequence, CallSite, Collective, Frame, Group, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import blocked
from ddplaunch.agent.diagnosis.run.decide import judge

FOUR = [0, 1, 2, 3]


STDLIB = "/usr/lib/python3.11"
IN_SELECT = Frame("select", f"{STDLIB}/selectors.py", 468)
LOOP = [Frame("_run_once", f"{STDLIB}/asyncio/base_events.py", 1884), Frame("main", FILE, 96)]


@pytest.mark.parametrize("unrecorded", ["", "2.7.1"])
@pytest.mark.parametrize("idle", [True, False])
def test_a_loop_of_asyncio_that_has_nothing_to_run_calls_nothing(idle: bool, unrecorded: str) -> None:
    """Its executor's thread is in the collective. A task that runs may call the one that is missing."""
    inner = (
        [IN_SELECT] if idle else [Frame("step", FILE, 70), Frame("_run", f"{STDLIB}/asyncio/events.py", 80)]
    )

    def waits(number: int, blocked: str, **groups: Any) -> RankEvidence:
        its = meeting(number, "all_reduce", 48, blocked, **groups)
        thread = Stack("comm_0", False, its.stacks[0].frames, on_lock=True)
        its = replace(its, stacks=[Stack("MainThread", True, [*inner, *LOOP]), thread])
        if not unrecorded:
            return its
        # The supervisor has looked at the main thread, and found no group open.
        own = [call("all_reduce", 8, 48, "entered", group=blocked)]
        known = [replace(each, completed=each.enqueued) for each in its.groups]
        return replace(its, unrecorded=unrecorded, calls=own, collectives=[], groups=known)

    first = [waits(n, "1", _0=(FOUR, 0), _1=(FOUR, 8), _2=(FOUR, 7)) for n in (0, 2, 3)]
    verdict = only(job(*first, waits(1, "2", _0=(FOUR, 0), _1=(FOUR, 7), _2=(FOUR, 8)), per_node=4))

    assert idle == (("group-partial", [1]) == (verdict.code, verdict.ranks)), verdict.sentence


CALLBACKS = """\
def fit():
    for step in range(9):
        loss.backward()
        fire()

def fire():
    try:
        on_step_end()
    except {}:
        log("switched off")

def on_step_end():
    dist.all_reduce(x, group=own)
"""


@pytest.mark.parametrize("caught", ["Exception", "KeyError"])
@pytest.mark.parametrize("alone", [True, False])
def test_an_exception_that_was_caught_may_have_led_one_side_past_the_others_call(
    caught: str, alone: bool
) -> None:
    """Of two sides with as many ranks, neither is said to have been led astray."""
    few = (2,) if alone else (2, 3)
    ahead = [
        stands_in(n, "all_reduce", "0", (("fit", 3),), _0=(FOUR, 6), _1=(FOUR, 6), last_output="off: 'x'")
        for n in few
    ]
    rest = [
        stands_in(
            n, "all_reduce", "1", (("fit", 4), ("fire", 8), ("on_step_end", 13)), _0=(FOUR, 5), _1=(FOUR, 7)
        )
        for n in FOUR
        if n not in few
    ]
    functions = source(CALLBACKS.format(caught), 3, 4, 8, 13)
    verdict = only(job(*ahead, *rest, per_node=4, functions=functions))

    assert "group-partial" == verdict.code
    told = f"; train.py:9 (`except {caught}`) may be why"
    assert alone == verdict.sentence.endswith(told), verdict.sentence
    assert alone == ("the last line of rank 2: off: 'x'" in verdict.facts)


def stands_in(
    number: int,
    op: str,
    blocked: str,
    frames: tuple[tuple[str, int], ...],
    last_output: str = "",
    **groups: Any,
) -> RankEvidence:
    """A rank in a collective of group `blocked`, called by these functions and lines."""
    its = meeting(number, op, frames[-1][1], blocked, **groups)
    way = [Frame(name, FILE, line) for name, line in frames]
    stacks = [replace(each, frames=[each.frames[0], *reversed(way)]) for each in its.stacks if each.main]
    return replace(its, stacks=stacks, last_output=last_output)


def test_half_of_a_group_and_the_other_half_in_a_barrier() -> None:
    """Neither is the smaller camp: all are named, and what was blocked first stands first."""
    half = [meeting(n, "all_reduce", 16, "1", _0=(FOUR, 5), _1=(FOUR, 1)) for n in (0, 1)]
    rest = [meeting(n, "barrier", 17, "0", _0=(FOUR, 6), _1=(FOUR, 0)) for n in (2, 3)]
    verdict = only(job(*half, *rest, per_node=4))

    assert ("group-partial", FOUR, [], 0.7) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert (
        "groups wait for one another: all_reduce 1 (train.py:16) of the group of ranks 0-3 has ranks 0 and 1 "
        "and lacks ranks 2 and 3; barrier 6 (train.py:17) of the default group has ranks 2 and 3 and "
        "lacks ranks 0 and 1"
    ) == verdict.sentence


def test_one_rank_in_the_other_of_two_groups_with_the_same_ranks() -> None:
    """It is alone with its opinion."""
    others = [meeting(n, "barrier", 17, "0", _0=(FOUR, 6), _1=(FOUR, 0)) for n in (0, 1, 2)]
    alone = meeting(3, "all_reduce", 16, "1", _0=(FOUR, 5), _1=(FOUR, 1))
    verdict = only(job(*others, alone, per_node=4))

    assert ("group-partial", [3], [0, 1, 2]) == (verdict.code, verdict.ranks, verdict.victims)


def test_who_is_in_one_group_only_is_a_victim() -> None:
    """Ranks 2 and 3 had no other call to make: the disagreement is between ranks 0 and 1."""
    alone = meeting(0, "all_reduce", 16, "1", _0=(FOUR, 5), _1=([0, 1], 1))
    partner = meeting(1, "barrier", 17, "0", _0=(FOUR, 6), _1=([0, 1], 0))
    others = [meeting(n, "barrier", 17, "0", _0=(FOUR, 6)) for n in (2, 3)]
    verdict = only(job(alone, partner, *others, per_node=4))

    assert ("group-partial", [0, 1], [2, 3]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_rank_that_computes_may_still_come_to_its_group() -> None:
    """Then there is no circle, and it is the one for which all wait."""
    half = [meeting(n, "all_reduce", 16, "1", _0=(FOUR, 5), _1=(FOUR, 1)) for n in (0, 1, 2)]
    busy = replace(rank(3, in_evaluate()), groups=[Group("0", FOUR, 5, 5), Group("1", FOUR, 0, 0)])

    assert ["rank-in-user-code"] == [verdict.code for verdict in judge(job(*half, busy, per_node=4))]


@pytest.mark.parametrize(
    ("frame", "on_lock", "code"),
    [
        (Frame("join", "/usr/lib/python3.11/threading.py", 1119), True, "group-partial"),
        (Frame("get", "/usr/lib/python3.11/queue.py", 180), False, "unknown"),  # with a timeout
        (Frame("write", "/job/train.py", 12), False, "unknown"),
    ],
)
def test_a_thread_that_waits_for_the_one_in_the_collective_calls_nothing(
    frame: Frame, on_lock: bool, code: str
) -> None:
    """Any other one might call more."""
    half = meeting(0, "all_reduce", 16, "1", _0=([0, 1], 5), _1=([0, 1], 2))
    other = Stack("MainThread", False, [frame, Frame("stop", "/job/train.py", 29)], on_lock=on_lock)
    half = replace(half, stacks=[*half.stacks, other])
    rest = meeting(1, "barrier", 17, "0", _0=([0, 1], 6), _1=([0, 1], 1))

    assert code == only(job(half, rest)).code


def test_a_collective_that_was_only_begun_holds_no_rank() -> None:
    """Rank 1 computes after an asynchronous call, and may come to the barrier."""
    alone = meeting(0, "barrier", 17, "0", _0=([0, 1], 6), _1=([0, 1], 0))
    begun = meeting(1, "all_reduce", 16, "1", _0=([0, 1], 5), _1=([0, 1], 1))
    begun = replace(begun, stacks=in_evaluate(), calls=[call("all_reduce", 1, 16, "issued", group="1")])

    assert "group-partial" not in {verdict.code for verdict in judge(job(alone, begun))}


def test_a_rank_whose_counters_are_not_known_closes_no_circle() -> None:
    """It may have called what the others are in."""
    half = [meeting(n, "all_reduce", 16, "1", _0=(FOUR, 5), _1=(FOUR, 1)) for n in (0, 1)]
    rest = [meeting(n, "barrier", 17, "0", _0=(FOUR, 6)) for n in (2, 3)]

    assert "group-partial" not in {verdict.code for verdict in judge(job(*half, *rest, per_node=4))}


def test_one_collective_that_does_not_end_has_all_its_ranks() -> None:
    """Then the network is at fault, or the GPUs."""
    ranks = [meeting(n, "all_reduce", 16, "1", _0=(FOUR, 5), _1=(FOUR, 1)) for n in FOUR]

    assert "unknown" == only(job(*ranks, per_node=4)).code


# --- Circles of ranks that wait for one another.


@pytest.mark.parametrize(
    ("waits", "circle"),
    [
        ({}, []),
        ({0: [1], 1: [2]}, []),
        ({3: [1], 1: [2], 2: [3]}, [1, 2, 3]),
        ({0: [1], 1: [2], 2: [1]}, [1, 2]),
        ({0: [1, 2], 1: [], 2: [3, 0]}, [0, 2]),
        ({0: [9], 1: [0, 2], 2: [0, 3], 3: [0]}, []),
    ],
)
def test_a_circle(waits: dict[int, list[int]], circle: list[int]) -> None:
    """Each of them waits for the next; a rank that waits for nobody, or that is not known, ends a way."""
    assert circle == blocked.find_circle(waits)


def test_thousands_of_ranks_in_a_row() -> None:
    """Nothing recurses, and no way is gone twice."""
    waits = {rank: [rank + 1, (rank + 2) % 5000] for rank in range(4999)}

    assert len(blocked.find_circle(waits)) > 1000
    assert [] == blocked.find_circle({rank: range(rank + 1, rank + 17) for rank in range(2000)})


# --- Groups that only some of the ranks make.


def makes_group(number: int) -> RankEvidence:
    """A rank that stands in new_group."""
    return rank(number, stack(Frame("_store_based_barrier", C10D, 900), Frame("new_group", C10D, 5000)))


def test_new_group_is_waiting() -> None:
    """A rank that makes a group waits for the others, as in a collective."""
    verdict = only(job(makes_group(0), rank(1, in_evaluate(), called=16)))

    assert ("rank-in-user-code", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "the other waits in new_group" in verdict.sentence


def test_ranks_that_wait_elsewhere_are_missing_from_new_group() -> None:
    """Those who are not in the group must call it as well; whose branch is wrong stays open."""
    others = [rank(n, in_collective("barrier", 60), called=3) for n in (2, 3)]
    verdict = only(job(makes_group(0), makes_group(1), *others))

    assert ("group-partial", [2, 3], [0, 1], 0.5) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert verdict.sentence.startswith("new_group")
    assert "has ranks 0 and 1 and lacks ranks 2 and 3: ranks 2 and 3 are in barrier" in verdict.sentence


def test_a_mesh_that_some_ranks_alone_make_is_a_group_that_lacks_the_others() -> None:
    """init_device_mesh is no call of init_process_group where there is a group."""
    mesh = Frame("init_device_mesh", f"{TORCH}/distributed/device_mesh.py", 1725)
    makes = [makes_group(n) for n in (0, 1)]
    makes = [
        replace(
            each, stacks=[replace(its, frames=[its.frames[0], mesh, *its.frames[1:]]) for its in each.stacks]
        )
        for each in makes
    ]
    others = [rank(n, in_collective("barrier", 60), called=3) for n in (2, 3)]

    assert ("group-partial", [2, 3]) == (only(job(*makes, *others)).code, only(job(*makes, *others)).ranks)


def test_a_rank_outside_the_group_that_has_called_new_group_does_not_lack() -> None:
    """It returned at once, and waits for the members now, beside the rank that has not called it."""
    inside = [replace(makes_group(n), sequences=made_groups(76)) for n in (0, 1)]
    outside = rank(2, in_collective("all_reduce", 83), called=3, sequences=made_groups(76))
    missing = rank(3, in_collective("all_reduce", 83), called=3)
    verdict = only(job(*inside, outside, missing))

    assert ("group-partial", [3], [0, 1, 2], 0.9) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert "has ranks 0 and 1 and lacks rank 3: rank 3 is in all_reduce" in verdict.sentence
    unknown = replace(outside, sequences=[])
    assert ([2, 3], 0.5) == (only(job(*inside, unknown, missing)).ranks, 0.5)


def made_groups(*lines: int) -> list[CallSequence]:
    """The calls of new_group of a rank, by their lines."""
    known = sorted(set(lines))
    sites = [CallSite("new_group", Frame("main", FILE, line)) for line in known]
    return [CallSequence("", 1, sites, [known.index(line) for line in lines])]


def test_a_call_of_new_group_that_a_rank_left_out_earlier_is_why_a_later_one_waits() -> None:
    """Groups are named by their number: whoever has made fewer looks for its peers under another name."""
    ranks = [
        *(rank(n, in_collective("all_reduce", 83), sequences=made_groups(25, 76)) for n in (0, 1)),
        replace(makes_group(2), sequences=made_groups(25, 76)),
        rank(3, in_collective("all_reduce", 83), sequences=made_groups(76)),
    ]
    verdict = only(job(*ranks))

    assert ("group-partial", [3], [2], 0.9) == (
        verdict.code,
        verdict.ranks,
        verdict.victims,
        verdict.confidence,
    )
    assert verdict.sentence.startswith(
        "ranks 0-2 called new_group (train.py:25), rank 3 did not: since then groups have other names there, "
        "and rank 2 waits in new_group"
    )
    half = [ranks[0], replace(ranks[2], rank=1), *(replace(ranks[3], rank=n) for n in (2, 3))]
    assert ("group-partial", [2, 3], 0.7) == (
        only(job(*half)).code,
        only(job(*half)).ranks,
        only(job(*half)).confidence,
    )


def test_one_rank_that_called_new_group_once_more_than_all_others_is_the_one_at_fault() -> None:
    few = [replace(makes_group(0), sequences=made_groups(25, 76))] + [
        replace(makes_group(n), sequences=made_groups(76)) for n in (1, 2, 3)
    ]
    verdict = only(job(*few))

    assert ("group-partial", [0], [1, 2, 3]) == (verdict.code, verdict.ranks, verdict.victims)
    assert verdict.sentence.startswith("rank 0 called new_group (train.py:25), ranks 1-3 did not")


@pytest.mark.parametrize(
    ("makes", "others"),
    [
        ((25, 76), (25,)),  # they may come to the second one
        ((25, 76), ()),
        ((25, 76), (26, 76)),  # each made as many: which was left out is not known
        ((), ()),
    ],
)
def test_calls_of_new_group_that_prove_no_omission_change_nothing(
    makes: tuple[int, ...], others: tuple[int, ...]
) -> None:
    first = replace(makes_group(0), sequences=made_groups(*makes) if makes else [])
    second = rank(1, in_collective("barrier", 60), sequences=made_groups(*others) if others else [])

    assert "has rank 0 and lacks rank 1" in only(job(first, second)).sentence


def test_ranks_that_are_in_different_calls_of_new_group_at_one_line_do_not_meet() -> None:
    fewer = replace(makes_group(0), sequences=made_groups(21))
    more = [replace(makes_group(n), sequences=made_groups(21, 21)) for n in (1, 2, 3)]
    pair = Group("1", [1, 2, 3], enqueued=4, completed=4)
    knowing = [replace(each, groups=[*each.groups, pair]) for each in more]

    plain, told = only(job(fewer, *more)), only(job(fewer, *knowing))

    assert ("group-partial", [0], [1, 2, 3], 0.9) == (
        plain.code,
        plain.ranks,
        plain.victims,
        plain.confidence,
    )
    said = (
        "rank 0 is in call 1 of new_group 17 (train.py:40), ranks 1-3 in call 2: groups have other names "
        "there"
    )
    assert said == plain.sentence
    assert f"{said}; what they left out made the group of ranks 1-3" == told.sentence
    assert "unknown" == only(job(*(replace(each, sequences=made_groups(21)) for each in [fewer, *more]))).code


def test_a_group_that_all_make_lacks_nobody() -> None:
    """Then the network keeps them, or ranks that were not seen."""
    assert "unknown" == only(job(makes_group(0), makes_group(1))).code
    unseen = replace(rank(1, in_collective("barrier", 60)), world_size=4)
    assert "unknown" == only(replace(job(makes_group(0), unseen), world_size=None)).code


# --- a circle of groups in a mesh: who left the common order first

ROWS = {0: ("1", [0, 1]), 1: ("1", [0, 1]), 2: ("2", [2, 3]), 3: ("2", [2, 3])}
COLUMNS = {0: ("3", [0, 2]), 1: ("4", [1, 3]), 2: ("3", [0, 2]), 3: ("4", [1, 3])}


def in_a_mesh(number: int, order: str) -> RankEvidence:
    """A rank that has called in its row (r) and its column (c) in this order, and stands in the last call."""
    counts: dict[str, int] = {}
    calls: list[Collective] = []
    for way in order:
        group, _ = (ROWS if way == "r" else COLUMNS)[number]
        counts[group] = counts.get(group, 0) + 1
        line, op = (16, "all_to_all_single") if way == "r" else (17, "all_reduce")
        calls.append(call(op, counts[group], line, group=group, at=NOW - 60 + len(calls)))
    calls[-1] = replace(calls[-1], state="entered")
    named = {f"_{group}": (ranks, counts.get(group, 0)) for group, ranks in (ROWS[number], COLUMNS[number])}
    last = calls[-1]
    site = CallSite(last.op, Frame("train", FILE, 16))
    sequences = [CallSequence(group, 1, [site], [0] * made) for group, made in counts.items()]
    its = meeting(number, last.op, 16 if order[-1] == "r" else 17, last.group, **named)
    return replace(its, calls=calls[-8:], sequences=sequences)


def test_a_rank_that_left_the_order_of_all_groups_first_is_at_fault() -> None:
    """Rank 3 leaves out the call in its row; all wait in a circle, and nobody is in the minority."""
    orders = {0: "rc" * 5 + "r" + "c", 1: "rc" * 5 + "rcr", 2: "rc" * 5 + "r", 3: "rc" * 5 + "cc"}
    verdict = only(job(*(in_a_mesh(n, order) for n, order in orders.items()), per_node=4))

    assert ("group-partial", [3], 0.8) == (verdict.code, verdict.ranks, verdict.confidence), verdict.sentence
    assert (
        "; rank 3 was the first out of order, and called all_reduce (train.py:17) where the others called "
        "all_to_all_single (train.py:16)" in verdict.sentence
    )


@pytest.mark.parametrize(
    "prefix",
    [["rc" * 1] * 4, ["rc" * 5, "rc" * 5, "cr" * 5, "rc" * 5]],
    ids=["too few calls in one order", "programs of their own"],
)
def test_without_a_common_order_nobody_left_it(prefix: list[str]) -> None:
    ends = ["rc", "rcr", "r", "cc"]
    verdicts = judge(job(*(in_a_mesh(n, prefix[n] + ends[n]) for n in FOUR), per_node=4))

    assert all("out of order" not in verdict.sentence for verdict in verdicts)
