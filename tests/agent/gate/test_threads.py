"""A node on which nothing more may be started is named, and does not seem to be something else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.agent.gate.jobs import Job, make_plan
from tests.few_threads import group_of

from ddplaunch.agent.contract import Exit


@pytest.mark.fault("threads-too-few")
@pytest.mark.parametrize("limit", [3, *(pytest.param(limit, marks=pytest.mark.whole) for limit in (1, 12))])
def test_a_node_that_has_no_room_for_its_ranks(job: Job, limit: int) -> None:
    """Its gate can start none of its own threads either, or only some, and says so all the same."""
    plan = make_plan(nproc_per_node=8)
    with group_of(limit) as words:
        hub = job.hub(plan)
        gates = [job.gate(plan, 0), job.gate(plan, 1, host=SimpleNamespace(words=words))]

        assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait() for gate in gates]
    assert [("threads-too-few", [1])] == [(each.code, each.nodes) for each in job.bundle.verdicts]
    assert f"(pids.max is {limit}); wanted: 5 for each rank at the very least" in job.verdict.sentence
    hub.says("threads-too-few: node 1: ")
