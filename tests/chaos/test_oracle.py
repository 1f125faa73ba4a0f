"""Each complaint of the oracle, and its silence where all is as it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.chaos import oracle
from tests.chaos.oracle import ENDS, Accused, Facts, complaints
from tests.chaos.scenario import (
    ATTACKS,
    CLOCK,
    GUARDIAN,
    HUB,
    JUMP,
    KILL,
    NODE,
    PAUSE,
    RANK,
    STOP,
    SUPERVISOR,
    Injury,
    Scenario,
)

WELL = Facts("succeeded", 0, (), (), done=True, bundle=True)
FAILED = Facts("failed", 100, (Accused("rank-failed", (1,), (3,)),), (), done=False, bundle=True)


def hit(action: str, target: str, node: int = 0, rank: int = 0) -> Injury:
    """An injury at any time."""
    return Injury(action, target, "ranks", 1.0, node, rank)


def scenario(job: str, *injuries: Injury) -> Scenario:
    """Two nodes of two ranks; rank 3 is the one that may go wrong."""
    return Scenario(1, "local", job, 2, 2, 3, torch=False, injuries=injuries)


def landed(facts: Facts, count: int = 1) -> Facts:
    """The same, with so many injuries that found their target."""
    return replace(facts, landed=tuple(range(count)))


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        (scenario("healthy"), WELL),
        (scenario("raise"), FAILED),
        (scenario("raise"), replace(FAILED, verdicts=(Accused("unknown"),))),
        (scenario("healthy", hit(JUMP, CLOCK)), landed(WELL)),
        (scenario("healthy", hit(KILL, RANK, rank=3)), landed(FAILED)),
        (
            scenario("healthy", hit(KILL, NODE, node=1)),
            landed(replace(FAILED, verdicts=(Accused("network-lost", (1,)),))),
        ),
        (
            scenario("healthy", hit(STOP, GUARDIAN)),
            landed(replace(WELL, end="cancelled", status_code=103, late=True)),
        ),
    ],
)
def test_its_own_end_an_injurys_and_naming_who_was_hit_are_right(job: Scenario, facts: Facts) -> None:
    assert [] == complaints(job, facts)


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        (replace(FAILED, verdicts=()), "ended as failed, not as succeeded"),
        (replace(WELL, end="cancelled", status_code=103, late=True), "it did not end by itself"),
        (replace(WELL, status_code=100), "succeeded, and `status` ends with 100"),
        (replace(WELL, done=False), "succeeded, and some rank has not done its steps"),
        (replace(WELL, verdicts=(Accused("slow"),)), "succeeded, with a verdict: slow"),
        (replace(WELL, bundle=False), "no readable bundle"),
        (replace(WELL, left=("hub",)), "left: hub"),
        (replace(WELL, said=("KeyError",)), "traceback: KeyError"),
    ],
)
def test_a_healthy_job_that_is_harmed_is_a_complaint(facts: Facts, complaint: str) -> None:
    assert complaint in complaints(scenario("healthy"), facts)


def test_an_innocent_rank_or_node_must_not_be_accused_even_where_another_was_hit() -> None:
    rank = replace(FAILED, verdicts=(Accused("rank-failed", (0,), (1,)),))
    node = replace(FAILED, verdicts=(Accused("network-lost", (0,)),))
    other = scenario("raise", hit(PAUSE, NODE, node=1))

    assert ["rank-failed accuses ranks [1]"] == complaints(scenario("raise"), rank)
    assert ["network-lost accuses nodes [0]"] == complaints(other, landed(node))


def test_a_failure_of_a_job_whose_work_is_all_done_is_a_complaint() -> None:
    """No injury hurt a rank, and every rank has done its steps."""
    found = complaints(scenario("raise", hit(KILL, HUB)), landed(replace(FAILED, done=True)))

    assert ["failed, and every rank has done its steps"] == found


def test_an_injury_that_missed_excuses_nothing() -> None:
    """Its target had gone before."""
    assert complaints(scenario("healthy", hit(KILL, RANK, rank=3)), FAILED)


def test_a_right_verdict_names_who_is_at_fault_and_abstaining_is_not_counted() -> None:
    assert oracle.right(scenario("raise"), FAILED)
    assert not oracle.right(scenario("raise"), replace(FAILED, verdicts=(Accused("unknown"),)))


def test_every_attack_has_its_expected_ends_on_every_backend() -> None:
    assert set() == {attack for attacks in ATTACKS.values() for attack in attacks} - ENDS.keys()


def test_a_death_may_show_as_a_hang_where_no_hub_is_left() -> None:
    """Another node's ranks wait for those that are gone; with a hub they would be told."""
    hang = replace(WELL, end="hang", status_code=105, verdicts=(Accused("unknown"),), done=False)
    death = hit(KILL, SUPERVISOR, node=1)

    assert [] == complaints(scenario("healthy", hit(STOP, HUB), death), landed(hang, 2))
    assert ["ended as hang, not as failed or gate or succeeded"] == complaints(
        scenario("healthy", death), landed(hang)
    )
