"""CPUs that do not suffice keep no job from starting, and are told before anybody wonders why it is slow."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from tests.agent.gate.jobs import Job, make_plan

from ddplaunch.agent.contract import Exit


@pytest.mark.fault("cpu-busy")
@pytest.mark.parametrize(
    ("ranks", "threads", "said"),
    [
        (2, "", "for 2 ranks; ranks will take turns"),
        (1, "3", "for 1 rank of 3 threads; threads will take turns: lower OMP_NUM_THREADS"),
    ],
)
def test_a_node_with_fewer_cpus_than_its_ranks_keep_busy(
    job: Job, ranks: int, threads: str, said: str
) -> None:
    """It is named, with what is short; the other one has enough."""
    one_cpu = SimpleNamespace(words=["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))])
    plan = make_plan(nproc_per_node=ranks, env={"OMP_NUM_THREADS": threads} if threads else {})
    hub = job.hub(plan)
    gates = [job.gate(plan, 0), job.gate(plan, 1, host=one_cpu)]

    assert [Exit.OK] * 2 == [gate.wait() for gate in gates]
    hub.says("note: cpu-busy: node 1: 1 CPUs, ")
    hub.says(said)
