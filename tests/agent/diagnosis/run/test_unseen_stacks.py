"""Ranks of which no stack could be read: threads, sockets and waits in the kernel may tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import only, rank
from tests.agent.diagnosis.run.build_outside import accused, asked, calls

from ddplaunch.agent.contract import (
    LastActs,
    Posture,
    Process,
    RankEvidence,
)
from ddplaunch.agent.diagnosis.run.decide import judge


def blind(number: int, wchan: str, wakeups: float = 0.0, **more: Any) -> RankEvidence:
    """A rank of which no stack was read."""
    process = Process(1000 + number, "S", wchan=wchan, wakeups=wakeups)
    return rank(number, [], **{"groups": [], "process": process, **more})


def test_who_sleeps_by_itself_is_told_without_stacks() -> None:
    """No collective waits there."""
    ranks = [blind(0, "futex_do_wait"), blind(1, "hrtimer_nanosleep"), blind(2, "futex_do_wait")]
    verdict = only(asked(*ranks))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 sleeps in the kernel (hrtimer_nanosleep), where no collective waits" in verdict.sentence


@pytest.mark.parametrize("other", ["futex_do_wait", "do_epoll_wait", ""])
def test_nobody_is_told_without_stacks_where_the_kernel_does_not(other: str) -> None:
    """A rank that waits for a socket may wait for another rank."""
    assert [] == accused(blind(0, "futex_do_wait"), blind(1, other))


def test_a_sleeper_is_not_told_where_others_wait_for_a_socket() -> None:
    """They may be in init_process_group, or read what is no rank's."""
    assert [] == accused(blind(0, "do_epoll_wait"), blind(1, "hrtimer_nanosleep"))


def test_a_sleeper_that_looks_again_and_again_is_not_told() -> None:
    """NCCL's blocking wait sleeps between two looks at its collective."""
    assert [] == accused(blind(0, "futex_do_wait"), blind(1, "hrtimer_nanosleep", wakeups=900.0))


def standing(*postures: str, **more: Any) -> list[RankEvidence]:
    """Ranks of which no stack was read, all asleep in a futex."""
    return [blind(n, "futex_do_wait", posture=each, **more) for n, each in enumerate(postures)]


@pytest.mark.parametrize(
    ("others", "own", "code"),
    [
        (Posture.COLLECTIVE, Posture.OWN, "rank-in-user-code"),
        (Posture.INIT, Posture.BEFORE, "rank-late-to-init"),
    ],
)
def test_who_is_not_where_the_others_are(others: str, own: str, code: str) -> None:
    """Told without stacks, by threads or by sockets."""
    verdict = only(asked(*standing(others, own, others)))

    assert (code, [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)


@pytest.mark.parametrize(
    "postures",
    [
        (Posture.COLLECTIVE, "", Posture.OWN),
        (Posture.INIT, Posture.BEFORE, ""),
        (Posture.COLLECTIVE, Posture.BEFORE),
        (Posture.INIT, Posture.OWN),
        (Posture.COLLECTIVE, Posture.COLLECTIVE),
        (Posture.OWN, Posture.OWN),
        (Posture.BEFORE, Posture.BEFORE),
    ],
    ids="-".join,
)
def test_nobody_is_told_where_one_rank_may_stand_elsewhere(postures: tuple[str, ...]) -> None:
    """A rank of which it is not known may be the one that the others wait for."""
    assert [] == accused(*standing(*postures))


def test_nobody_is_told_where_not_all_ranks_are_seen() -> None:
    """The one that the others wait for may run on another machine."""
    assert [] == accused(*standing(Posture.COLLECTIVE, Posture.OWN, world_size=3))


@pytest.mark.parametrize(
    ("others", "own"), [(Posture.COLLECTIVE, Posture.OWN), (Posture.INIT, Posture.BEFORE)]
)
@pytest.mark.parametrize(("wchan", "told"), [("futex_do_wait", [1, 2]), ("locks_lock_inode_wait", [])])
def test_of_two_one_may_wait_for_the_other(others: str, own: str, wchan: str, told: list[int]) -> None:
    """For a lock that it holds; who sleep at the same place are told."""
    first, second, _ = standing(others, own, own)

    assert told == accused(first, second, blind(2, wchan, posture=own))


def test_who_polls_is_told_if_it_has_a_data_loader() -> None:
    """Any other may wait for the store."""
    poll, loader = "poll_schedule_timeout.constprop.0", [Process(7, "S", role="loader")]

    assert [] == accused(blind(0, "futex_do_wait"), blind(1, poll))
    looks = {"still_for": 4.0, "stuck_for": 44.0}  # it looks every five seconds whether its workers live
    verdict = only(asked(blind(0, "futex_do_wait"), blind(1, poll, children=loader, **looks)))
    assert ("rank-in-dataloader", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


@pytest.mark.parametrize(("still", "told"), [(11.0, [1]), (9.0, [])])
def test_who_runs_while_the_others_wait(still: float, told: list[int]) -> None:
    """Not hung for all that is known, and told when the others have waited for long."""
    waits = standing(Posture.COLLECTIVE, still_for=still)
    runs = blind(1, "", posture=Posture.OWN, still_for=0.0, stuck_for=12.0)
    found = judge(asked(*waits, runs))

    assert told == [rank for each in found for rank in each.ranks]
    assert {"slow"} >= {each.code for each in found}


CAME = LastActs(sent=20.0, spoke=20.0, ran=20.0, worked=20.0)
RAN_ON = LastActs(sent=21.0, spoke=21.0, ran=12.0, worked=21.0)


def acting(*acts: LastActs | None, **more: Any) -> list[RankEvidence]:
    """Ranks of which no stack was read and no thread's wait, all asleep in a futex."""
    return [blind(n, "futex_do_wait", last_acts=its, **more) for n, its in enumerate(acts)]


def test_who_has_sent_nothing_since_the_others_came_is_told_without_tracing() -> None:
    """It has run for long since its last message."""
    verdict = only(asked(*acting(CAME, RAN_ON, CAME)))

    assert ("rank-in-user-code", [1], [0, 2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert "rank 1 has sent nothing to another rank for 21 s, and has run since" in verdict.sentence


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (replace(RAN_ON, sent=20.2), CAME),
        (replace(RAN_ON, ran=17.0), CAME),
        (replace(RAN_ON, spoke=13.0), CAME),
        (RAN_ON, replace(CAME, sent=21.0, spoke=21.0, ran=21.0, worked=21.0)),
        (RAN_ON, replace(CAME, ran=19.0)),
        (RAN_ON, replace(CAME, worked=22.0)),
        (RAN_ON, RAN_ON),
        (RAN_ON, None),
        (CAME, CAME),
    ],
    ids=[
        "all sent at one time",
        "it may have begun a collective before it waits",
        "it waits for the store, or for a server",
        "another sent nothing later and may be the one",
        "another has run, too",
        "another may receive",
        "one of two may wait for the other",
        "nothing is known of another",
        "all have come",
    ],
)
def test_messages_that_do_not_tell_who_is_late(own: LastActs, other: LastActs | None) -> None:
    """Nobody is accused by times alone that have another reason."""
    assert [] == accused(*acting(CAME, own, other))


@pytest.mark.parametrize(("own", "other"), [(Posture.COLLECTIVE, ""), ("", Posture.OWN)])
def test_threads_that_tell_more_than_messages(own: str, other: str) -> None:
    """It waits for one that it has begun before, or another is in none."""
    first, second = acting(CAME, RAN_ON)

    assert [] == accused(replace(first, posture=other), replace(second, posture=own))


def test_messages_say_nothing_where_stacks_do() -> None:
    """Or where not all ranks are seen."""
    assert [] == accused(*acting(CAME, RAN_ON, world_size=3))
    assert [] == accused(calls(0, "all_reduce", last_acts=CAME), calls(1, "all_reduce", last_acts=RAN_ON))


def test_who_waits_for_a_signal_is_told_without_stacks() -> None:
    """No collective does."""
    assert [1] == accused(blind(0, "futex_do_wait"), blind(1, "__do_sys_pause"))
