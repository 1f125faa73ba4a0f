"""One bundle of what nodes have written each for itself, where no hub is left to ask them."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from tests.agent.diagnosis.build import rank

from ddplaunch.agent.contract import Exit, Exited, JobPlan, NodeEvidence, RankEvidence, WatchdogPlan
from ddplaunch.agent.hub import orphaned_job
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.without_hub import WithoutHub

PLAN = JobPlan("digits", 2, 1, launch=[], command=[], watchdog=WatchdogPlan(10.0, 60.0))


def write(folder: Path, node: int, ranks: list[RankEvidence], ended: Exited | None) -> None:
    """Judge one node's ranks, and keep them as its supervisor does; `ended`: its launch command."""
    place = LaunchContext(str(folder), node)
    Path(place.node).mkdir(parents=True)
    alone = WithoutHub(PLAN, place, node, 0)
    found = NodeEvidence(node, f"n{node}", time.time(), "running", ranks, launch_exit=ended)
    if ended is None:
        assert alone.of_hang(found) is not None
    else:
        alone.of_end(Exit.WORKER_FAILED, found)


@pytest.mark.parametrize(("seconds", "accused"), [(5.0, []), (-5.0, [0])], ids=["after", "before"])
def test_a_failure_after_another_nodes_hang_accuses_nobody(
    tmp_path: Path, seconds: float, accused: list[int]
) -> None:
    """Its peer was ended as hung, so its own connection broke. One that failed before is to blame."""
    at = time.time() + seconds
    gone = dataclasses.replace(rank(0), alive=False, exit=Exited(at, 1))
    write(tmp_path, 0, [gone], Exited(at, 1))
    write(tmp_path, 1, [rank(1, stuck_for=70.0, still_for=70.0)], None)

    found = orphaned_job.gather(PLAN, str(tmp_path))

    assert found is not None
    assert accused == sorted({each for one in found.verdicts for each in one.ranks})
