"""Two real faults at once: both are told, or the one says what it hides, which is told when it is mended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from tests.agent.gate.cluster import MASTER_PORT, Cluster
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import COME, Job, wait_for
from tests.agent.gate.torches import TORCHRUN, make_torch

from ddplaunch.agent.contract import Verdict

SERVE_HTTP = "from http.server import *; HTTPServer(('', 8080), BaseHTTPRequestHandler).serve_forever()"
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
AHEAD = {"LD_PRELOAD": FAKETIME, "FAKETIME": "+61s", "DONT_FAKE_MONOTONIC": "1"}
Make = Callable[[int], list[Host]]


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
        return Cluster(self._jobs[-1], self.hosts, **changes)

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
        trial.hub.says(f"node {node} (n{node}) checked in")


def brief(verdicts: list[Verdict]) -> list[tuple[str, list[int]]]:
    """By code and node."""
    return [(verdict.code, verdict.nodes) for verdict in verdicts]


def mended(host: Host) -> None:
    """Without its firewall."""
    subprocess.run(["ip", "netns", "exec", host.namespace, "nft", "flush", "ruleset"], check=True)


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
@pytest.mark.fault("port-filtered")
def test_a_loopback_name_and_a_dropped_port(trials: MakeTrials) -> None:
    """One node takes itself for the master, another's packets to it vanish. Mended is one after the other."""
    lab = trials(3)
    lab.hosts[1].hosts({"n0": "127.0.1.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    lab.hosts[0].firewall(f"ip saddr 10.77.0.3 tcp dport {MASTER_PORT} drop")
    trial = lab.job(master_addr="n0")
    trial.start(0, 2)
    here(trial, 0, 2)
    trial.start(1)

    found = trial.refuses()
    assert [("master-is-loopback", [1]), ("port-filtered", [0])] == brief(found)
    assert "node 2 (n2) -> node 0 (n0, n0) port 29500: no answer" in found[1].sentence.replace(
        "10.77.0.1", "n0"
    )
    assert found[0].facts[-1] == (
        "not known before the name leads there: whether node 1 (n1) can reach the master"
    )

    lab.hosts[1].hosts({host.name: host.address for host in lab.hosts})
    trial = lab.job(master_addr="n0")
    trial.start(0, 1, 2)
    assert [("port-filtered", [0])] == brief(trial.refuses())

    mended(lab.hosts[0])
    trial = lab.job(master_addr="n0")
    trial.start(0, 1, 2)
    trial.starts()


@pytest.mark.whole
@pytest.mark.fault("version-differs")
@pytest.mark.fault("shm-too-small")
def test_another_torch_and_little_shared_memory(trials: MakeTrials, tmp_path: Path) -> None:
    """What all must have alike stands before what one lacks."""
    lab = trials(2)
    old, new = (
        make_torch(tmp_path / "old", "2.13.0", "2.27.5"),
        make_torch(tmp_path / "new", "2.15.0", "2.30.7"),
    )
    lab.hosts[0].environment["SHM_SIZE"] = "64M"
    lab.hosts[1].environment["SHM_SIZE"] = "16M"
    trial = lab.job(launch=TORCHRUN, resources={"shm": 64 << 20})
    trial.start(0, env=new)
    here(trial, 0)
    trial.start(1, env=old)

    assert [("version-differs", [1]), ("shm-too-small", [1])] == brief(trial.refuses())


def test_a_missing_node_hides_a_dropped_port(trials: MakeTrials) -> None:
    """The paths are tried once all are here: that they were not is said, and when they are, what is wrong."""
    lab = trials(3)
    lab.hosts[0].firewall(f"ip saddr 10.77.0.2 tcp dport {MASTER_PORT} drop")
    trial = lab.job(gate={"timeout": COME})
    trial.start(0, 1)

    (missing,) = trial.refuses()
    assert ("node-missing", [2]) == (missing.code, missing.nodes)
    assert missing.facts[-1] == (
        "not known before node 2 (n2) is here: what it finds at home, and the paths between the nodes"
    )

    trial = lab.job()
    trial.start(0, 1, 2)
    assert [("port-filtered", [0])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
@pytest.mark.fault("stranger-listens")
def test_an_unknown_name_and_a_stranger(trials: MakeTrials) -> None:
    """One node does not know the master's name, another meets a proxy in its place."""
    lab = trials(3)
    lab.hosts[1].hosts({"n1": "10.77.0.2", "n2": "10.77.0.3"})
    lab.hosts[2].firewall(f"tcp dport {MASTER_PORT} redirect to :8080", hook="nat")
    words = [*lab.hosts[2].words, sys.executable, "-c", SERVE_HTTP]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as proxy:
        listening = ["ip", "netns", "exec", lab.hosts[2].namespace, "ss", "-Htln", "sport = 8080"]
        wait_for(lambda: subprocess.run(listening, capture_output=True, check=True).stdout)
        trial = lab.job(master_addr="n0")
        trial.start(0, 1, 2)
        found = trial.refuses()
        proxy.kill()

    assert [("dns-not-found", [1]), ("stranger-listens", [0])] == brief(found)
    assert "it speaks HTTP" in found[1].sentence


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
@pytest.mark.fault("mtu-black-hole")
def test_two_pairs_that_fail_in_two_ways(trials: MakeTrials) -> None:
    """Nothing passes between two nodes, and of two others only what is small."""
    lab = trials(4)
    lab.hosts[2].firewall("ip saddr 10.77.0.2 drop")
    lab.hosts[3].firewall("ip saddr 10.77.0.3 meta length > 1000 drop")
    trial = lab.job()
    trial.start(0, 1, 2, 3)

    assert [("port-filtered", [1, 2]), ("mtu-black-hole", [2, 3])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.skipif(not os.path.exists(FAKETIME), reason="needs libfaketime")
@pytest.mark.fault("port-filtered")
def test_a_clock_ahead_and_a_dropped_port(trials: MakeTrials) -> None:
    """What a node finds at home stands before the ways between nodes. (Under libfaketime it tries none.)"""
    lab = trials(3)
    lab.hosts[0].firewall(f"ip saddr 10.77.0.3 tcp dport {MASTER_PORT} drop")
    trial = lab.job(launch=["{python}", "--rdzv-backend=c10d"])
    trial.start(0, 2)
    here(trial, 0, 2)
    trial.start(1, env=AHEAD)

    assert [("clock-skew", [1]), ("port-filtered", [0])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.fault("shm-too-small")
@pytest.mark.fault("network-one-way")
def test_little_shared_memory_and_connections_one_way(trials: MakeTrials) -> None:
    """What makes every attempt fail stands before what another node may cure."""
    lab = trials(3)
    lab.hosts[2].firewall("tcp flags & (syn | ack) == syn drop")
    for host, size in zip(lab.hosts, ("64M", "16M", "64M")):
        host.environment["SHM_SIZE"] = size
    trial = lab.job(resources={"shm": 64 << 20})
    trial.start(0, 2)
    here(trial, 0, 2)
    trial.start(1)

    assert [("shm-too-small", [1]), ("network-one-way", [2])] == brief(trial.refuses())


@pytest.mark.whole
@pytest.mark.fault("port-in-use")
@pytest.mark.fault("port-filtered")
def test_a_held_port_and_a_closed_way(trials: MakeTrials) -> None:
    """Nobody can try the master's port while somebody else holds it; the nodes' other ports are tried."""
    lab = trials(3)
    lab.hosts[2].firewall("ip saddr 10.77.0.2 drop")
    trial = lab.job()
    trial.hold(MASTER_PORT)
    trial.start(0, 1, 2)

    found = trial.refuses()
    assert [("port-in-use", [0]), ("port-filtered", [1, 2])] == brief(found)
    assert "not known before it is free: whether the other nodes reach that port" == found[0].facts[-1]
