"""When the hub looks into a job: by the heartbeats of its ranks, and by their calls of init_process_group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import pytest
from tests.agent.diagnosis.build_calls import caller, sets
from tests.agent.hub.sessions import Hub

from ddplaunch.agent.contract import Beat, NodeWait, RankBeat, RankEvidence, WatchdogPlan, codec
from ddplaunch.agent.diagnosis.run.slow import BUSY
from ddplaunch.agent.hub.stalls import (
    AGE,
    CALLS_LATEST,
    CALLS_SETTLE,
    IMPORTS,
    LAUNCH,
    LONG,
    SILENT,
    START,
    TORCH_FIRST,
    InitCalls,
    StallDetector,
    node_wait,
)

PLAN = WatchdogPlan(notice_after=10.0, kill_after=60.0)
PATIENT = WatchdogPlan(notice_after=10.0, kill_after=600.0)
IN_FIRST: dict[str, Any] = {
    "waits": True,
    "phase": "first collective",
    "completed": 0,
    "makes_communicator": True,
}
"""A rank on which NCCL makes its first communicator."""
NODES = [frozenset(), frozenset([0]), frozenset([0, 1])]
"""The nodes of a job, by their number."""


def rank(number: int, stuck: float = 0.0, still: float | None = None, **more: Any) -> RankBeat:
    """A living rank that trains, unless told otherwise."""
    values = {"alive": True, "phase": "running", "waits": False, "completed": 7, **more}
    return RankBeat(
        number, number, 100 + number, stuck_for=stuck, still_for=stuck if still is None else still, **values
    )


def run(
    watch: StallDetector, seconds: int, ranks: Callable[[int], dict[int, list[RankBeat]]], start: int = 0
) -> list[tuple[int, str]]:
    """What is decided, second by second, while each node says each second what `ranks(second)` says of it."""
    said = []
    for second in range(start, start + seconds):
        for node, beats in ranks(second).items():
            watch.add(Beat(node, "running", float(second), beats), float(second))
        if watch.is_moving_again(second + 0.1):
            said.append((second, "moving again"))
        why = watch.decide(second + 0.1)
        if why is not None:
            said.append((second, why))
    return said


def steps(*ends: int) -> Callable[[int], tuple[int, int]]:
    """For how long nothing has moved, and what is done, of ranks that move at these moments."""

    def at(t: int) -> tuple[int, int]:
        passed = [end for end in ends if t >= end]
        return t - max(passed, default=0), 7 + len(passed)

    return at


def moves_at(*ends: int) -> Callable[[int], dict[int, list[RankBeat]]]:
    """Two ranks of one node, of which the first waits, that come on at these moments."""

    def ranks(t: int) -> dict[int, list[RankBeat]]:
        stuck, done = steps(*ends)(t)
        return {0: [rank(0, stuck, waits=True, completed=done), rank(1, stuck, completed=done)]}

    return ranks


def two_worlds(t: int) -> dict[int, list[RankBeat]]:
    """Two torchruns in one script: one hangs, and waits for none of the other's ranks, which train."""
    hangs = [rank(0, t, waits=True), rank(1, t)]
    return {0: [*hangs, *(replace(rank(n, 0, completed=t), pid=200 + n) for n in (0, 1))]}


ONE, TWO = NODES[1], NODES[2]
CASES: dict[
    str, tuple[WatchdogPlan, frozenset[int], int, Callable[[int], dict[int, list[RankBeat]]], list[Any]]
]
CASES = {
    "a hang is noticed once and ended once": (
        PLAN, TWO, 100,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t)], 1: [rank(2, t, waits=True)]},
        [(10, "still"), (60, "deadline")],
    ),
    "one rank that moves is enough": (
        PLAN, TWO, 100, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]}, [],
    ),
    "a rank that others wait for, and that burns CPU, is asked about late and keeps the deadline": (
        PLAN, ONE, 200,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0)]},
        [(int(10 * BUSY), "still"), (60, "deadline")],
    ),
    "the deadline is kept whoever computes while somebody waits": (
        PLAN, ONE, 200,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0), rank(2, t, still=0)]},
        [(40, "still"), (60, "deadline")],
    ),
    "a notice is not called off by CPU time": (
        PATIENT, ONE, 100,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=t if t < 20 else 0)]},
        [(10, "still")],
    ),
    "a notice is not called off by a count that comes late, as a full dump has it": (
        PATIENT, ONE, 100,
        lambda t: {0: [rank(0, t, waits=True, completed=7 if t < 12 else 8), rank(1, t)]},
        [(10, "still")],
    ),
    "what was learnt in a long pause puts off the next notice, and no deadline": (
        PLAN, ONE, 200, moves_at(55),
        [(10, "still"), (55, "moving again"), (85, "still"), (115, "deadline")],
    ),
    "moving again is reported once": (
        PLAN, ONE, 100, moves_at(12, 30),
        [(10, "still"), (12, "moving again"), (54, "still"), (90, "deadline")],
    ),
    "a rank that spins while it waits counts as quiet": (
        PLAN, ONE, 20, lambda t: {0: [rank(0, t, still=0, waits=True), rank(1, t)]}, [(10, "still")],
    ),
    "nothing is judged before every node has sent a beat": (
        PATIENT, TWO, 100, lambda t: {0: [rank(0, t, waits=True)]}, [(int(LAUNCH), "still")],
    ),
    "a launch command that others wait for has a minute, and keeps the deadline": (
        PLAN, TWO, 200,
        lambda t: {0: [rank(0, t, waits=True)], 1: []},
        [(int(LAUNCH), "still"), (90, "deadline")],
    ),
    "where no rank is seen anywhere it is looked every minute": (
        PLAN, ONE, 400, lambda t: {0: []},
        [(60, "still"), *((second, "still") for second in range(121, 302, 60)), (360, "deadline")],
    ),
    "a slow start teaches no patience": (
        PATIENT, ONE, 120,
        lambda t: {0: [] if t < 80 else [rank(0, t - 80, waits=True), rank(1, t - 80)]},
        [(60, "still"), (80, "moving again"), (90, "still")],
    ),
    "a culprit that prints now and then is not noticed again": (
        PLAN, ONE, 100, lambda t: {0: [rank(0, t, waits=True), rank(1, t % 15)]}, [(10, "still")],
    ),
    "a long wait beside movement is looked at now and then": (
        PLAN, ONE, 300,
        lambda t: {0: [rank(0, t, waits=True), rank(1, 0, completed=t)]},
        [(int(LONG * 10), "asked"), (int(2 * LONG * 10), "asked")],
    ),
    "a wait beside another world is looked at in time": (
        PLAN, ONE, 40, two_worlds, [(10, "apart"), (20, "apart"), (30, "apart")],
    ),
    "kill_after never leaves it at the notice": (
        WatchdogPlan(10.0, None), ONE, 1000, lambda t: {0: [rank(0, t)]}, [(10, "still")],
    ),
    "ranks that have all ended do not hang": (
        PLAN, ONE, 100, lambda t: {0: [rank(0, t, alive=False)]}, [],
    ),
    "communicators of NCCL take their time": (
        PATIENT, ONE, 700,
        lambda t: {0: [rank(n, t, **IN_FIRST) for n in (0, 1)]},
        [(10 * START, "still"), (600 + LAUNCH, "deadline")],
    ),
    "a rank that does not come to the first collective is noticed as always": (
        PATIENT, ONE, 60,
        lambda t: {0: [rank(0, t, **IN_FIRST), rank(1, t, phase="first collective", completed=0)]},
        [(10, "still")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_when_it_is_looked_into_a_job(case: str) -> None:
    plan, nodes, seconds, ranks, expected = CASES[case]
    assert expected == run(StallDetector(plan, nodes), seconds, ranks)


def test_a_rank_that_burns_cpu_alone_or_before_its_group_gets_more_patience() -> None:
    """START times that of another."""
    alone = run(StallDetector(PATIENT, ONE), 200, lambda t: {0: [rank(n, t, still=0) for n in (0, 1)]})
    starting = run(
        StallDetector(PATIENT, ONE),
        200,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0, phase="init_process_group")]},
    )

    assert (int(10 * START), "still") == alone[0] == starting[0]


def test_a_computation_that_no_rank_waits_for_is_not_ended() -> None:
    watched = StallDetector(PLAN, ONE)
    said = run(watched, 300, lambda t: {0: [rank(0, t, still=max(0, t - 100), phase="running")]})

    assert [(160, "deadline")] == [each for each in said if each[1] == "deadline"]


def test_a_long_evaluation_that_shows_something_new_is_not_ended() -> None:
    """Rank 0 evaluates for five minutes while all others wait, and prints or reads every half minute."""
    said = run(
        StallDetector(PLAN, ONE), 300, lambda t: {0: [rank(0, t % 30, still=0), rank(1, t, waits=True)]}
    )

    assert "deadline" not in [why for _, why in said]


NOT_SET = WatchdogPlan(notice_after=10.0, kill_after=600.0, patient=True)


def deadlines(plan: WatchdogPlan, ranks: list[RankBeat], seconds: int = 8000) -> list[int]:
    """When the job is ended, if its ranks do nothing from the beginning."""

    def at(second: int) -> dict[int, list[RankBeat]]:
        return {0: [replace(each, stuck_for=second, still_for=second * each.still_for) for each in ranks]}

    return [second for second, why in run(StallDetector(plan, ONE), seconds, at) if why == "deadline"]


def test_imports_have_half_a_minute_whatever_kill_after_is() -> None:
    """A rank that computes before it has a group, while the others wait in init_process_group."""
    hasty = WatchdogPlan(notice_after=5.0, kill_after=10.0)
    imports = rank(1, still=0, phase="init_process_group")

    assert [IMPORTS] == deadlines(hasty, [rank(0, still=1, waits=True), imports])
    assert [10] == deadlines(hasty, [rank(0, still=1, waits=True), replace(imports, still_for=1)])


def test_an_unset_kill_after_is_longer_than_the_groups_timeouts() -> None:
    evaluates, waits_for_it = rank(0, still=0, timeout=3600), rank(1, still=1, waits=True, timeout=3600)
    sleeps = rank(0, still=1, timeout=600)

    assert [3600 + TORCH_FIRST] == deadlines(NOT_SET, [evaluates, waits_for_it])
    assert [600 + TORCH_FIRST] == deadlines(NOT_SET, [sleeps, replace(waits_for_it, timeout=600)])
    assert [600] == deadlines(NOT_SET, [replace(each, timeout=60) for each in (sleeps, waits_for_it)])


def test_with_kill_after_unset_no_job_is_ended_that_torch_would_not_end() -> None:
    assert [] == deadlines(NOT_SET, [rank(0, still=0, timeout=600), rank(1, still=0, timeout=600)])
    assert [] == deadlines(NOT_SET, [rank(0, still=1)])
    assert [600 + TORCH_FIRST] == deadlines(NOT_SET, [rank(0, still=1, timeout=600)])


def test_a_number_that_was_set_is_kept_whatever_the_groups_timeout_is() -> None:
    assert [60] == deadlines(PLAN, [rank(0, still=0, timeout=3600), rank(1, still=1, waits=True)])


def test_a_starved_supervisor_is_no_hang() -> None:
    """A node whose beats stay away keeps the others from being judged, until it counts as silent."""
    watch = StallDetector(PLAN, TWO)
    run(watch, 5, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]})
    said = run(watch, 60, lambda t: {0: [rank(0, t, waits=True)]}, start=5)

    assert (4 + int(SILENT), "still") == said[0]
    assert AGE < PLAN.notice_after


def test_beats_of_different_moments_are_no_hang() -> None:
    """Rank 1 computed for 30 s and ended; the last beat of rank 0 still tells how long it waited for that."""
    watch = StallDetector(PLAN, TWO)
    run(watch, 30, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]})
    watch.add(Beat(1, "ended", 30.0, [rank(1, 0, alive=False)]), 30.0)

    assert [None, None] == [watch.decide(second) for second in (30.1, 39.9)]


def test_after_a_notice_another_rank_that_ends_is_worth_another() -> None:
    watch = StallDetector(PLAN, ONE)
    first = run(watch, 15, lambda t: {0: [rank(0, t, waits=True), rank(1, t)]})
    second = run(watch, 30, lambda t: {0: [rank(0, t, waits=True), rank(1, t, alive=False)]}, start=15)

    assert ([(10, "still")], [(25, "still")]) == (first, second)


@pytest.mark.parametrize(("pause", "again"), [(None, 16), (17.0, 29)], ids=["soon", "not sooner than told"])
def test_after_evidence_that_shows_movement_it_is_looked_again(pause: float | None, again: int) -> None:
    """Each look stops the ranks for a moment; GPUs that may compute are looked at once more and no sooner."""
    start = 11 if pause is None else 12
    watch = StallDetector(PLAN if pause is None else PATIENT, ONE)
    run(watch, start, lambda t: {0: [rank(0, t)]})
    watch.stand_down(float(start), **({} if pause is None else {"at_least": pause}))

    assert [(again, "still")] == run(watch, 40 if pause else 20, lambda t: {0: [rank(0, t)]}, start=start)


def test_the_status_has_since_when_which_ranks_of_a_node_wait() -> None:
    """Since the last of them began to; a living rank that does not wait is named, a dead one is not."""
    beats = [
        rank(0, 30.0, waits=True),
        rank(1, 12.0, waits=True),
        rank(2, 0.5),
        rank(3, 90.0, waits=True, alive=False),
    ]

    assert NodeWait(988.0, [0, 1], [2]) == node_wait(Beat(0, "running", 5.0, beats), 1000.0)
    assert NodeWait(988.0, [0, 1]) == node_wait(Beat(0, "running", 5.0, beats[:2]), 1000.0)


def test_a_short_wait_is_not_in_the_status() -> None:
    assert None is node_wait(Beat(0, "running", 5.0, [rank(0, 2.9, waits=True), rank(1)]), 1000.0)
    assert None is node_wait(Beat(0, "running", 5.0, [rank(0, 60.0), rank(1)]), 1000.0)


WRONG: dict[str, Any] = {
    "address": "wrong.address",
    "unresolved": "NXDOMAIN",
    "settings": sets(MASTER_ADDR="wrong.address"),
}


def calls(hub: Hub, node: int, rank: RankEvidence) -> None:
    """The node tells of a rank's call."""
    hub.says(node, "rendezvous", {"rank": codec.dump(rank)})


def test_calls_are_compared_a_moment_after_the_last_and_no_later_than_calls_latest() -> None:
    heard = InitCalls()
    assert not heard.take_due(100.0)

    heard.note_call(100.0)
    assert not heard.take_due(100.0 + CALLS_SETTLE - 0.1)
    assert heard.take_due(100.0 + CALLS_SETTLE)
    assert not heard.take_due(100.0 + CALLS_SETTLE + 1)

    for step in range(40):
        heard.note_call(200.0 + step / 10)
    assert heard.take_due(200.0 + CALLS_LATEST)


def test_an_overridden_rendezvous_is_told_at_the_call(hub: Hub) -> None:
    """All nodes are asked, all get one notice with the line, and nobody is ended."""
    for number in range(4):
        calls(hub, number // 2, caller(number, **WRONG))
    hub.ticks(CALLS_SETTLE + 0.3)
    for node in (0, 1):
        hub.answers(node, caller(2 * node, **WRONG), caller(2 * node + 1, **WRONG))

    for wire in hub.wires:
        (notice,) = wire.got("notice")
        (verdict,) = notice["verdicts"]
        assert ("dns-not-found", [0, 1, 2, 3]) == (verdict["code"], verdict["ranks"])
        assert "train.py:9 sets MASTER_ADDR to wrong.address" in verdict["sentence"]
        assert [] == wire.got("end")


def test_calls_that_leave_all_to_the_launcher_cost_nothing(hub: Hub) -> None:
    """No node is asked for evidence."""
    for number in range(4):
        calls(hub, number // 2, caller(number))
    hub.ticks(CALLS_LATEST + 1)

    assert [] == hub.wires[0].got("collect")
