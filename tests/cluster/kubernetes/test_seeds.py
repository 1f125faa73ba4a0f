"""The corpus' seed programs in two pods: what must be said of their faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster import seeds
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.jobs import Job
from tests.corpus.seed_table import Seed

pytestmark = pytest.mark.slow
START = 240.0
"""Seconds for torch to come up on a machine that many share."""
PROGRAMS = seeds.faults(mpi=False)


@pytest.mark.whole
@pytest.mark.parametrize("seed", PROGRAMS)
def test_the_fault_of_a_seed_is_told(seed: Seed, cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """The right code and ranks, with the words that show it."""
    said = seed.two
    assert said is not None
    keys = seeds.keys(seed, fault=True)
    job = Job.submit(cluster, namespace, tmp_path, seeds.program(seed), **keys)
    job.ended(START)
    print(job.logs())

    seeds.check(said, job.bundle().verdicts[0])


@pytest.mark.whole
@pytest.mark.parametrize("seed", PROGRAMS)
def test_a_seed_without_its_fault_ends_well(
    seed: Seed, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    keys = seeds.keys(seed, fault=False)
    job = Job.submit(cluster, namespace, tmp_path, seeds.program(seed), **keys)

    assert "Complete" == job.ended(START)
    assert [] == job.bundle().verdicts
