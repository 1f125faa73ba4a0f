"""What one node makes of its own ranks where no hub is: when it ends them, whom it blames, what it keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.agent.diagnosis.build import NOW, PEER_GONE, dead, raised, rank

from ddplaunch.agent.contract import (
    Beat,
    Exit,
    Exited,
    JobPlan,
    NodeEvidence,
    Process,
    RankBeat,
    RankEvidence,
    WatchdogPlan,
    bundle_file,
)
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.without_hub import HUB_RETURNS, WithoutHub

PLAN = JobPlan("digits", 2, 2, launch=[], command=[], watchdog=WatchdogPlan(10.0, 60.0))


def alone(folder: Path, plan: JobPlan = PLAN) -> WithoutHub:
    """Node 0 of the job."""
    place = LaunchContext(str(folder), 0)
    Path(place.node).mkdir(parents=True)
    return WithoutHub(plan, place, 0, 0)


def beat(seconds: float) -> Beat:
    """Two ranks that have waited in a collective for so long."""
    ranks = [RankBeat(n, n, 1000 + n, True, "running", seconds, seconds, True, completed=16) for n in (0, 1)]
    return Beat(0, "running", NOW, ranks)


def evidence(*ranks: RankEvidence) -> NodeEvidence:
    """Of node 0."""
    return NodeEvidence(0, "n0", NOW, "running", list(ranks))


def waits(number: int) -> RankEvidence:
    """A rank that has stood in a collective for long."""
    return rank(number, stuck_for=70.0, still_for=70.0)


@pytest.mark.parametrize(
    ("seconds", "away", "kill_after", "ends"),
    [
        (61, HUB_RETURNS, 60.0, True),
        (61, 0.0, 60.0, False),
        (61, HUB_RETURNS - 1, 60.0, False),
        (50, HUB_RETURNS, 60.0, False),
        (9999, HUB_RETURNS, None, False),
    ],
    ids=["without a hub", "a hub is there", "it may come back", "too soon", "never"],
)
def test_only_without_a_hub_a_node_ends_what_has_stood_still_for_kill_after(
    tmp_path: Path, seconds: float, away: float, kill_after: float | None, ends: bool
) -> None:
    plan = dataclasses.replace(PLAN, watchdog=WatchdogPlan(10.0, kill_after))

    assert ends == alone(tmp_path, plan).must_end(beat(seconds), away)


def test_what_moves_after_all_is_left_alone(tmp_path: Path) -> None:
    moving = rank(0, stuck_for=1.0, still_for=0.1)

    assert alone(tmp_path).judge_hang(evidence(moving, waits(1))) is None


def test_nobody_is_blamed_for_what_another_node_may_have_done(tmp_path: Path) -> None:
    """All ranks of this node wait: why is known elsewhere."""
    found = alone(tmp_path).judge_hang(evidence(waits(0), waits(1)))

    assert found is not None
    code, (verdict,) = found
    assert (Exit.HANG, "unknown", [], [0, 1]) == (code, verdict.code, verdict.ranks, verdict.victims)
    assert "this is the view of node 0 alone: the hub did not answer" in verdict.facts


def test_a_rank_that_is_stopped_here_is_blamed(tmp_path: Path) -> None:
    stopped = rank(0, stuck_for=70.0, still_for=70.0, process=Process(1000, "T"))
    found = alone(tmp_path).judge_hang(evidence(stopped, waits(1)))

    assert found is not None
    code, (verdict,) = found
    assert (Exit.HANG, "rank-stopped", [0]) == (code, verdict.code, verdict.ranks)
    kept = bundle_file.read(str(tmp_path / "run/node-0/bundle.zip"))
    assert [verdict] == kept.verdicts
    assert kept.evidence is not None
    assert [0, 1] == [each.rank for each in kept.evidence.evidence[0].ranks]


@pytest.mark.parametrize(
    ("dies", "code", "blamed"),
    [
        (dead(0, 1, code=1, raised=[raised("RuntimeError", PEER_GONE, 1)]), "unknown", []),
        (dead(0, 1, code=1), "unknown", []),
        (dead(0, 1, code=1, raised=[raised("ValueError", "no such file", 1)]), "rank-failed", [0]),
        (dead(0, 1, signal=9), "rank-killed", [0]),
    ],
    ids=["its peer was gone", "an exit code says no more", "an exception of its own", "killed"],
)
def test_of_a_dead_rank_only_what_it_did_itself_is_blamed(
    tmp_path: Path, dies: RankEvidence, code: str, blamed: list[int]
) -> None:
    exit_code, (verdict,) = alone(tmp_path).judge_end(Exit.WORKER_FAILED, evidence(dies, waits(1)))

    assert (Exit.WORKER_FAILED, code, blamed) == (exit_code, verdict.code, verdict.ranks)


def test_the_launch_command_of_one_node_is_not_blamed_either(tmp_path: Path) -> None:
    """torchrun gives up, too, when the other node's never comes."""
    here = dataclasses.replace(evidence(), launch_exit=Exited(NOW - 1, code=1))
    _, (verdict,) = alone(tmp_path).judge_end(Exit.WORKER_FAILED, here)

    assert ("unknown", [], []) == (verdict.code, verdict.nodes, verdict.ranks)
