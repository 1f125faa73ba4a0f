"""Jobs and hosts for tests of the gate; nothing of them is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate import hosts
from tests.agent.gate.clusters import Cluster, Make, MakeCluster
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Job


@pytest.fixture(name="network")
def _network(tmp_path: Path) -> Iterator[Make]:
    """A function that makes that many hosts."""
    reason = hosts.missing()
    if reason:
        pytest.skip(reason)
    made: list[hosts.Network] = []

    def make(count: int) -> list[Host]:
        made.append(hosts.Network(count, tmp_path))
        return made[-1].hosts

    yield make
    for network in made:
        network.close()


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    job = Job(tmp_path, agent)
    yield job
    job.close()


@pytest.fixture(name="cluster")
def _cluster(network: Make, job: Job) -> MakeCluster:
    """A function that makes a job on so many hosts."""
    return lambda count, **changes: Cluster(job, network(count), **changes)
