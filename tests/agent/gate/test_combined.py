"""Two real faults at once: both are told, or the one says what it hides, which is told when it is mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.gate.clusters import MASTER_PORT, Cluster, Make
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import COME, Job

from ddplaunch.agent.contract import Verdict


class Trials:
    """Jobs one after the other on the same hosts, as somebody mends one thing after the other."""

    def __init__(self, hosts: list[Host], folder: Path, agent: list[str]) -> None:
        self.hosts = hosts
        self._folder = folder
        self._agent = agent
        self._jobs: list[Job] = []

    def job(self, **changes: Any) -> Cluster:
        self.close()
        folder = self._folder / f"job-{len(self._jobs)}"
        folder.mkdir()
        self._jobs.append(Job(folder, self._agent))
        return Cluster(self._jobs[-1], self.hosts, **{"master_addr": None, **changes})

    def close(self) -> None:
        """Nothing runs any more."""
        for job in self._jobs:
            job.close()


@pytest.fixture(name="trials")
def _trials(network: Make, tmp_path: Path, agent: list[str]) -> Any:
    """A function that makes so many hosts, for jobs."""
    made: list[Trials] = []

    def make(count: int) -> Trials:
        made.append(Trials(network(count), tmp_path, agent))
        return made[-1]

    yield make
    for each in made:
        each.close()


MakeTrials = Callable[[int], Trials]


def here(trial: Cluster, *nodes: int) -> None:
    """Wait until the hub knows them: what the next one brings is then told with all that is known."""
    for node in nodes:
        trial.hub_says(f"node {node} (n{node}) checked in")


def brief(verdicts: list[Verdict]) -> list[tuple[str, list[int]]]:
    """By code and node."""
    return [(verdict.code, verdict.nodes) for verdict in verdicts]


def test_a_missing_node_hides_a_dropped_port_and_the_verdict_says_so(trials: MakeTrials) -> None:
    lab = trials(3)
    lab.hosts[0].firewall(f"ip saddr 10.77.0.2 tcp dport {MASTER_PORT} drop")
    trial = lab.job(gate={"timeout": COME})
    trial.start(0, 1)

    (missing,) = trial.refuses()
    assert ("node-missing", [2]) == (missing.code, missing.nodes)
    assert missing.facts[-1] == (
        "not checked until node 2 (n2) is here: its own checks, and the paths between the nodes"
    )

    trial = lab.job()
    trial.start(0, 1, 2)
    assert [("port-filtered", [0])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.fault("port-in-use")
@pytest.mark.fault("port-filtered")
def test_while_a_port_is_held_the_ways_to_other_ports_are_tried(trials: MakeTrials) -> None:
    lab = trials(3)
    lab.hosts[2].firewall("ip saddr 10.77.0.2 drop")
    trial = lab.job()
    trial.hold(MASTER_PORT)
    trial.start(0, 1, 2)

    found = trial.refuses()
    assert [("port-in-use", [0]), ("port-filtered", [1, 2])] == brief(found)
    assert "not checked until the port is free: whether the other nodes reach it" == found[0].facts[-1]
