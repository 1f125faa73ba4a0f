"""The corpus' seed programs on two nodes of a real Slurm: what must be said of each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster import seeds
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job
from tests.corpus.seed_table import Seed

pytestmark = [pytest.mark.slow, pytest.mark.whole]
AT_CALL = ("dns-not-found", "master-is-loopback", "rendezvous-overridden", "rank-duplicate")
PROGRAMS = seeds.faults(mpi=True)


@pytest.mark.parametrize("seed", PROGRAMS)
def test_the_fault_of_a_seed_is_told(seed: Seed, cluster: Cluster, work: Path) -> None:
    """The right code and ranks; a rendezvous that is overridden is named by a notice."""
    said = seed.two
    assert said is not None
    job = Job.submit(cluster, work, seeds.program(seed), **seeds.keys(seed, fault=True))
    job.ended(180)
    print(job.output)

    verdict = job.bundle().verdicts[0]
    seeds.check(said, verdict)
    if said.code in AT_CALL:
        first = next(event for event in job.bundle().events if event.kind in ("notice", "verdict"))
        assert ("notice", True) == (first.kind, first.text.startswith(said.code))
    job.leaves_nothing()


@pytest.mark.parametrize("seed", PROGRAMS)
def test_a_seed_without_its_fault_ends_well(seed: Seed, cluster: Cluster, work: Path) -> None:
    job = Job.submit(cluster, work, seeds.program(seed), **seeds.keys(seed, fault=False))

    assert "COMPLETED" == job.ended(180), job.output
    assert [] == job.bundle().verdicts
    assert [] == [event.text for event in job.bundle().events if event.kind in ("notice", "verdict")]


@pytest.mark.fault("rendezvous-overridden")
def test_ranks_that_are_spawned_below_torchrun(cluster: Cluster, work: Path) -> None:
    """They inherit its word that it keeps the store, so that at a port of their own nobody listens."""
    program = (seeds.PROGRAMS / "spawned.py").read_text()
    keys = {"env": {"SEED_PORT": seeds.PORT}, "watchdog": {"notice_after": "5s", "kill_after": "12s"}}
    job = Job.submit(cluster, work, program, nproc_per_node=1, resources={"memory": "3Gi"}, **keys)
    job.ended(180)
    print(job.output)

    verdict = job.bundle().verdicts[0]
    assert ("rendezvous-overridden", [0, 1, 2, 3], [0, 1]) == (verdict.code, verdict.ranks, verdict.nodes)
    assert "where no rank opens a store" in verdict.sentence
