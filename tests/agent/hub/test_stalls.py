"""When the hub looks into a job: by the heartbeats of its ranks, and by their calls of init_process_group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

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


def test_a_hang_is_noticed_once_and_ended_once() -> None:
    """Nothing moves from the start on: one look after notice_after, one after kill_after, none besides."""
    watch = StallDetector(PLAN, NODES[2])
    said = run(watch, 100, lambda t: {0: [rank(0, t, waits=True), rank(1, t)], 1: [rank(2, t, waits=True)]})

    assert [(10, "still"), (60, "deadline")] == said


def test_one_rank_that_moves_is_enough() -> None:
    """While a single rank on any node prints, reads or computes anew, nothing is asked."""
    watch = StallDetector(PLAN, NODES[2])
    said = run(watch, 100, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]})

    assert [] == said


def test_a_rank_that_burns_cpu_gets_more_patience() -> None:
    """A busy rank that others wait for is asked about after BUSY times the patience; alone, START times."""
    watched = run(
        StallDetector(PATIENT, NODES[1]), 200, lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0)]}
    )
    alone = run(
        StallDetector(PATIENT, NODES[1]), 200, lambda t: {0: [rank(0, t, still=0), rank(1, t, still=0)]}
    )
    starting = run(
        StallDetector(PATIENT, NODES[1]),
        200,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0, phase="init_process_group")]},
    )

    assert (int(10 * BUSY), "still") == watched[0]
    assert (int(10 * START), "still") == alone[0] == starting[0]


def test_the_deadline_is_kept_where_one_computes_and_the_others_wait() -> None:
    """A rank that burns CPU in one place gets no more than kill_after when all others wait for it."""
    said = run(
        StallDetector(PLAN, NODES[1]), 200, lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0)]}
    )

    assert [(40, "still"), (60, "deadline")] == said


def test_the_deadline_is_kept_whoever_computes_while_somebody_waits() -> None:
    """Two that loop, and one that waits for them: kill_after, and no more."""
    said = run(
        StallDetector(PLAN, NODES[1]),
        200,
        lambda t: {0: [rank(0, t, waits=True), rank(1, t, still=0), rank(2, t, still=0)]},
    )

    assert [(40, "still"), (60, "deadline")] == said


def test_a_computation_that_no_rank_waits_for_is_not_ended() -> None:
    watched = StallDetector(PLAN, NODES[1])
    said = run(watched, 300, lambda t: {0: [rank(0, t, still=max(0, t - 100), phase="running")]})

    assert [(160, "deadline")] == [each for each in said if each[1] == "deadline"]


def test_imports_have_half_a_minute_whatever_kill_after_is() -> None:
    """A rank that computes before it has a group, while the others wait in init_process_group."""
    hasty = WatchdogPlan(notice_after=5.0, kill_after=10.0)
    imports = rank(1, still=0, phase="init_process_group")

    assert [IMPORTS] == deadlines(hasty, [rank(0, still=1, waits=True), imports])
    assert [10] == deadlines(hasty, [rank(0, still=1, waits=True), replace(imports, still_for=1)])


NOT_SET = WatchdogPlan(notice_after=10.0, kill_after=600.0, patient=True)


def deadlines(plan: WatchdogPlan, ranks: list[RankBeat], seconds: int = 8000) -> list[int]:
    """When the job is ended, if its ranks do nothing from the beginning."""

    def at(second: int) -> dict[int, list[RankBeat]]:
        return {0: [replace(each, stuck_for=second, still_for=second * each.still_for) for each in ranks]}

    return [second for second, why in run(StallDetector(plan, NODES[1]), seconds, at) if why == "deadline"]


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
    """The user knows better."""
    assert [60] == deadlines(PLAN, [rank(0, still=0, timeout=3600), rank(1, still=1, waits=True)])


def test_a_notice_is_not_called_off_by_cpu_time() -> None:
    """The rank that slept computes now, and does nothing else; the others wait as before."""

    def ranks(t: int) -> dict[int, list[RankBeat]]:
        return {0: [rank(0, t, waits=True), rank(1, t, still=t if t < 20 else 0)]}

    assert [(10, "still")] == run(StallDetector(PATIENT, NODES[1]), 100, ranks)


def test_a_notice_is_not_called_off_by_a_count_that_comes_late() -> None:
    """A full dump shows that a collective was done long ago."""

    def ranks(t: int) -> dict[int, list[RankBeat]]:
        return {0: [rank(0, t, waits=True, completed=7 if t < 12 else 8), rank(1, t)]}

    assert [(10, "still")] == run(StallDetector(PATIENT, NODES[1]), 100, ranks)


def test_a_long_evaluation_that_shows_something_new_is_not_ended() -> None:
    """Rank 0 evaluates for five minutes while all others wait, and prints or reads every half minute."""
    said = run(
        StallDetector(PLAN, NODES[1]), 300, lambda t: {0: [rank(0, t % 30, still=0), rank(1, t, waits=True)]}
    )

    assert "deadline" not in [why for _, why in said]


def test_learned_patience_does_not_put_off_the_deadline() -> None:
    """After a long pause that ended by itself the next hang is noticed, and ended, within kill_after."""

    def ranks(t: int) -> dict[int, list[RankBeat]]:
        stuck, done = (t, 7) if t < 55 else (t - 55, 8)
        return {0: [rank(0, stuck, waits=True, completed=done), rank(1, stuck, completed=done)]}

    said = run(StallDetector(PLAN, NODES[1]), 200, ranks)

    assert [(10, "still"), (55, "moving again"), (85, "still"), (115, "deadline")] == said


def test_a_launch_command_that_others_wait_for_keeps_the_deadline() -> None:
    """It has a minute at least; where no rank is seen anywhere, nothing shows that it hangs.

    So it is looked at every minute.
    """
    waited = run(StallDetector(PLAN, NODES[2]), 200, lambda t: {0: [rank(0, t, waits=True)], 1: []})
    alone = run(StallDetector(PLAN, NODES[1]), 400, lambda t: {0: []})

    assert [(60, "still"), (90, "deadline")] == waited
    assert ((60, "still"), (360, "deadline")) == (alone[0], alone[-1])
    assert [*["still"] * 5, "deadline"] == [why for _, why in alone]


def test_a_rank_that_spins_while_it_waits_counts_as_quiet() -> None:
    said = run(
        StallDetector(PLAN, NODES[1]), 20, lambda t: {0: [rank(0, t, still=0, waits=True), rank(1, t)]}
    )

    assert [(10, "still")] == said


def test_a_starved_supervisor_is_no_hang() -> None:
    """A node whose beats stay away keeps the others from being judged, until it counts as silent."""
    watch = StallDetector(PLAN, NODES[2])
    run(watch, 5, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]})
    said = run(watch, 60, lambda t: {0: [rank(0, t, waits=True)]}, start=5)

    assert (4 + int(SILENT), "still") == said[0]
    assert AGE < PLAN.notice_after


def test_nothing_is_judged_before_every_node_has_sent_a_beat() -> None:
    said = run(StallDetector(PATIENT, NODES[2]), 100, lambda t: {0: [rank(0, t, waits=True)]})

    assert (int(LAUNCH), "still") == said[0]


def test_a_launch_command_without_workers() -> None:
    """torchrun may take LAUNCH seconds before it has workers, on one node or on all."""
    said = run(StallDetector(PLAN, NODES[2]), 100, lambda t: {0: [rank(0, t, waits=True)], 1: []})

    assert (int(LAUNCH), "still") == said[0]


def test_moving_again_is_reported_once_and_raises_the_patience() -> None:
    def ranks(t: int) -> dict[int, list[RankBeat]]:
        stuck = t if t < 12 else t - 12 if t < 30 else t - 30
        done = 7 if t < 12 else 8 if t < 30 else 9
        return {0: [rank(0, stuck, waits=True, completed=done), rank(1, stuck, completed=done)]}

    said = run(StallDetector(PLAN, NODES[1]), 100, ranks)

    assert [(10, "still"), (12, "moving again"), (54, "still"), (90, "deadline")] == said


def test_a_slow_start_teaches_no_patience() -> None:
    """Ranks that were first seen after more than a minute, and then hang, are noticed as soon as any."""
    said = run(
        StallDetector(PATIENT, NODES[1]),
        120,
        lambda t: {0: [] if t < 80 else [rank(0, t - 80, waits=True), rank(1, t - 80)]},
    )

    assert [(60, "still"), (80, "moving again"), (90, "still")] == said


def test_for_how_long_no_rank_has_been_seen() -> None:
    """On any node: 0 once there is one."""
    watch = StallDetector(PLAN, NODES[2])
    assert 0 == watch.launching_for(1.0)
    run(watch, 20, lambda t: {0: [], 1: []})
    assert 30 == watch.launching_for(30.0)
    run(watch, 1, lambda t: {0: [], 1: [rank(1)]}, start=31)
    assert 0 == watch.launching_for(32.0)


def test_a_culprit_that_prints_now_and_then_is_not_noticed_again() -> None:
    """A hung job whose culprit logs a line each 15 s is told of once, for the others still wait."""
    watch = StallDetector(PLAN, NODES[1])
    said = run(watch, 100, lambda t: {0: [rank(0, t, waits=True), rank(1, t % 15)]})

    assert [(10, "still")] == said


def test_a_long_wait_beside_movement_is_looked_at_now_and_then() -> None:
    """Ranks that wait for minutes while another moves are asked about, every LONG times the patience."""
    watch = StallDetector(PLAN, NODES[1])
    said = run(watch, 300, lambda t: {0: [rank(0, t, waits=True), rank(1, 0, completed=t)]})

    assert [(int(LONG * 10), "asked"), (int(2 * LONG * 10), "asked")] == said


def test_a_wait_beside_another_world_is_looked_at_in_time() -> None:
    """Two torchruns in one script: ranks of the one wait for none of the other, whatever that one does."""

    def ranks(second: int) -> dict[int, list[RankBeat]]:
        hangs = [rank(0, second, waits=True), rank(1, second)]
        return {0: [*hangs, *(replace(rank(n, 0, completed=second), pid=200 + n) for n in (0, 1))]}

    assert [(10, "apart"), (20, "apart"), (30, "apart")] == run(StallDetector(PLAN, NODES[1]), 40, ranks)


def test_beats_of_different_moments_are_no_hang() -> None:
    """Rank 1 computed for 30 s and ended; the last beat of rank 0 still tells how long it waited for that."""
    watch = StallDetector(PLAN, NODES[2])
    run(watch, 30, lambda t: {0: [rank(0, t, waits=True)], 1: [rank(1, 0)]})
    watch.add(Beat(1, "ended", 30.0, [rank(1, 0, alive=False)]), 30.0)

    assert watch.decide(30.1) is None
    assert watch.decide(39.9) is None


def test_after_a_notice_another_rank_that_ends_is_worth_another() -> None:
    watch = StallDetector(PLAN, NODES[1])
    first = run(watch, 15, lambda t: {0: [rank(0, t, waits=True), rank(1, t)]})
    second = run(watch, 30, lambda t: {0: [rank(0, t, waits=True), rank(1, t, alive=False)]}, start=15)

    assert ([(10, "still")], [(25, "still")]) == (first, second)


def test_standing_down_starts_anew() -> None:
    """When the evidence shows movement after all, nothing was said, and it is looked at again later."""
    watch = StallDetector(PLAN, NODES[1])
    run(watch, 11, lambda t: {0: [rank(0, t)]})
    watch.stand_down(11.0)
    said = run(watch, 20, lambda t: {0: [rank(0, t)]}, start=11)

    assert [(16, "still")] == said


def test_kill_after_never_leaves_it_at_the_notice() -> None:
    said = run(StallDetector(WatchdogPlan(10.0, None), NODES[1]), 1000, lambda t: {0: [rank(0, t)]})

    assert [(10, "still")] == said


def test_ranks_that_have_all_ended_do_not_hang() -> None:
    """Nobody is left who could move."""
    assert [] == run(StallDetector(PLAN, NODES[1]), 100, lambda t: {0: [rank(0, t, alive=False)]})


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


def test_communicators_of_nccl_take_their_time() -> None:
    """While all are in their first collective, a look comes START times later than else."""
    watch = StallDetector(PATIENT, NODES[1])
    said = run(watch, 700, lambda t: {0: [rank(n, t, **IN_FIRST) for n in (0, 1)]})

    assert [(10 * START, "still"), (600 + LAUNCH, "deadline")] == said


def test_a_rank_that_does_not_come_to_the_first_collective_is_noticed_as_always() -> None:
    """The others cannot make a communicator without it."""
    watch = StallDetector(PATIENT, NODES[1])
    late: dict[str, Any] = {"phase": "first collective", "completed": 0}

    assert [(10, "still")] == run(watch, 60, lambda t: {0: [rank(0, t, **IN_FIRST), rank(1, t, **late)]})


def test_gpus_that_may_compute_are_looked_at_once_more_and_no_sooner() -> None:
    """Each look stops the ranks for a moment."""
    watch = StallDetector(PATIENT, NODES[1])
    assert [(10, "still")] == run(watch, 12, lambda t: {0: [rank(0, t, waits=True)]})
    watch.stand_down(12.0, at_least=17.0)

    assert [(29, "still")] == run(watch, 40, lambda t: {0: [rank(0, t, waits=True)]}, start=12)


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
