"""Faults of the corpus on several nodes of a real Slurm: the same verdicts as on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster import corpus
from tests.cluster.slurm.backend.commands import ddplaunch
from tests.cluster.slurm.cluster import Cluster
from tests.corpus.faults import Fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("fault", corpus.faults())
def test_a_fault_of_the_corpus_gets_the_same_verdict(fault: Fault, cluster: Cluster, work: Path) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        done = ddplaunch(cluster, work, *words, check=False)
        return done.returncode, done.stdout, done.stderr

    corpus.write(fault, work, env={"CORPUS_SCENE": str(work)}, resources={"memory": "3Gi"})
    corpus.check(fault, "slurm", work, call)
