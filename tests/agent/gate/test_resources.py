"""A node with too few CPUs, too little room for threads or a disk that fills up."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.gate.jobs import Job, make_plan
from tests.disks import fill, small_disk
from tests.few_threads import group_of

from ddplaunch.agent.contract import Exit, Files


@pytest.mark.fault("cpu-busy")
@pytest.mark.parametrize(
    ("ranks", "threads", "said"),
    [
        (2, "", "for 2 ranks; ranks will take turns"),
        (1, "3", "for 1 rank of 3 threads; threads will take turns: lower OMP_NUM_THREADS"),
    ],
)
def test_a_node_with_too_few_cpus_for_ranks_is_named(job: Job, ranks: int, threads: str, said: str) -> None:
    one_cpu = SimpleNamespace(words=["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))])
    plan = make_plan(nproc_per_node=ranks, env={"OMP_NUM_THREADS": threads} if threads else {})
    hub = job.hub(plan)
    gates = [job.gate(plan, 0), job.gate(plan, 1, host=one_cpu)]

    assert [Exit.OK] * 2 == [gate.wait() for gate in gates]
    hub.says("note: cpu-busy: node 1: 1 CPUs, ")
    hub.says(said)


@pytest.mark.fault("threads-too-few")
def test_a_node_that_has_no_room_for_its_ranks_is_named(job: Job) -> None:
    """Its gate can start none of its own threads either, or only some, and says so all the same."""
    plan = make_plan(nproc_per_node=8)
    with group_of(3) as words:
        hub = job.hub(plan)
        gates = [job.gate(plan, 0), job.gate(plan, 1, host=SimpleNamespace(words=words))]

        assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait() for gate in gates]
    assert [("threads-too-few", [1])] == [(each.code, each.nodes) for each in job.bundle.verdicts]
    assert "(pids.max is 3); wanted: 5 for each rank at the very least" in job.verdict.sentence
    hub.says("threads-too-few: node 1: ")


def test_settings_are_written_though_the_disk_fills_up_behind_its_check(job: Job, tmp_path: Path) -> None:
    plan = make_plan(nodes=2)
    with small_disk(tmp_path / "node-1", 40 << 20) as disk:
        hub = job.hub(plan)
        late = job.gate(plan, 1)
        hub.says("node 1 checked in")
        fill(disk)
        first = job.gate(plan, 0)

        assert [Exit.OK] * 2 == [first.wait(), late.wait()]
        assert job.agreed(0) == job.agreed(1)
        assert [Files.AGREED] == os.listdir(disk / Files.RUN / "node-1")
