"""Two jobs with one address and port: which of them is told so, whose the other is, and what mends it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Callable

import pytest
from tests.agent.gate.clusters import GATE_PORT, MASTER_PORT, Cluster, MakeCluster
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, make_plan
from tests.agent.gate.torches import TORCH

from ddplaunch.agent.contract import Env, Exit

STORE = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), None, True, wait_for_workers=False)
print("up", flush=True)
sys.stdin.readline()
"""
Serve = Callable[[Host, int], int]


@pytest.fixture(name="store")
def _store() -> Iterator[Serve]:
    """A function that has another job's store listen on a host; returns its process."""
    started = []

    def serve(host: Host, port: int) -> int:
        words = ["env", f"{Env.JOB}=other", TORCH, "-c", STORE, str(port)]
        process = subprocess.Popen([*host.words, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process.pid

    yield serve
    for process in started:
        process.communicate(b"\n")


def other(trial: Cluster, port: int) -> Agent:
    """The hub, with a name and a key of its own, of another job on the first host."""
    key, trial.job.key = trial.job.key, b"another key"
    hub = trial.job.hub(make_plan(job="other"), address=None, port=port, host=trial.hosts[0])
    trial.job.key = key
    hub.folder.rename(hub.folder.with_name("other"))
    return hub


@pytest.mark.slow
@pytest.mark.fault("store-shared")
def test_another_jobs_store_on_the_master_port_is_told_by_its_job(cluster: MakeCluster, store: Serve) -> None:
    trial = cluster(2)
    pid = store(trial.hosts[0], MASTER_PORT)

    assert ("store-shared", [0]) == trial.verdict()
    said = trial.job.verdict.sentence
    assert f"port {MASTER_PORT} is held by pid {pid} (" in said
    assert "ddplaunch job other): it is the TCPStore of another training job" in said
    assert "choose another port, or leave it out" in trial.job.verdict.hint


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.fault("store-shared")
def test_a_node_that_is_led_to_another_jobs_store_is_told(cluster: MakeCluster, store: Serve) -> None:
    """Node 0 has its port, and a rule that somebody left behind leads node 1 elsewhere."""
    trial = cluster(2)
    store(trial.hosts[1], 29501)
    trial.hosts[1].firewall(f"tcp dport {MASTER_PORT} redirect to :29501", hook="nat")

    assert ("store-shared", [0]) == trial.verdict()
    assert trial.job.verdict.sentence == (
        "node 1 (n1) would meet another job at n0 port 29500, not node 0 (n0): it is the TCPStore of another "
        "training job"
    )


@pytest.mark.fault("store-shared")
def test_another_jobs_hub_on_the_gates_port_is_told_at_once(cluster: MakeCluster) -> None:
    trial = cluster(2)
    first = other(trial, GATE_PORT)
    hub = trial.job.hub(trial.plan, address=None, port=GATE_PORT, host=trial.hosts[0])

    assert Exit.NODE_AT_FAULT == hub.wait(10)
    assert ("store-shared", [0]) == (trial.job.verdict.code, trial.job.verdict.nodes)
    assert f"port {GATE_PORT} is held by pid {first.process.pid} (" in trial.job.verdict.sentence
    assert "choose another port, or leave gate.port out" in trial.job.verdict.hint
