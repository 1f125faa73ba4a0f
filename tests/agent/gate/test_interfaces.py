"""The interface that NCCL or Gloo will take: tried by peers, mended where nobody has set it, else told."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from tests.agent.gate.clusters import Cluster, MakeCluster
from tests.agent.gate.devices import add
from tests.agent.gate.hosts import Host
from tests.agent.gate.torches import TORCH

from ddplaunch.agent.contract import Exit, Files, RendezvousSettings, codec
from ddplaunch.agent.interfaces import library

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
WRONG = [pytest.mark.fault("gloo-interface-wrong"), pytest.mark.whole]
SUM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones))
dist.destroy_process_group()
"""


def with_ib(cluster: MakeCluster) -> Cluster:
    """Two hosts with GPUs, and with an ib0 that joins neither to the other: NCCL's first choice."""
    trial = cluster(2, python=TORCH)
    for place, host in enumerate(trial.hosts):
        add(host, "ib0", f"10.88.0.{place + 1}/24")
        host.environment["GPU"] = "nvidia0"
    return trial


def agreed(trial: Cluster, node: int) -> RendezvousSettings:
    """What this node's supervisor will be told."""
    folder = trial.job.folder(f"node-{node}") / Files.NODE.format(node=node)
    return codec.read(RendezvousSettings, str(folder / Files.AGREED))


def taken(host: Host, what: str, env: dict[str, str]) -> list[str]:
    """What the real library takes on this host."""
    words = [*host.words, TORCH, str(library.__file__), what]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env}, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return list((answer if what == "nccl" else answer["gloo"])["using"])


def test_nccl_is_led_to_the_interface_that_works(cluster: MakeCluster) -> None:
    trial = with_ib(cluster)
    trial.starts()
    assert [{NCCL: "=eth0"}] * 2 == [agreed(trial, node).env for node in range(2)]
    why = agreed(trial, 1).why[NCCL]
    assert "by itself node 0 (n0)'s NCCL takes ib0 10.88.0.1, which node 1 (n1) cannot reach" == why
    assert f"note: {NCCL}==eth0 is set on nodes 0 (n0) and 1 (n1): by itself" in trial.gates[1].output
    assert ["ib0:10.88.0.1"] == taken(trial.hosts[0], "nccl", {})
    assert ["eth0:10.77.0.1"] == taken(trial.hosts[0], "nccl", agreed(trial, 0).env)


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        pytest.param(
            "ib",
            "nccl-interface-wrong",
            "NCCL takes ib0 10.88.0.1, which node 1 (n1) cannot reach",
            marks=pytest.mark.fault("nccl-interface-wrong"),
        ),
        pytest.param(
            "ens",
            "nccl-interface-missing",
            "NCCL finds no interface: NCCL_SOCKET_IFNAME=ens matches none",
            marks=pytest.mark.fault("nccl-interface-missing"),
        ),
    ],
)
def test_what_was_set_for_nccl_stays(cluster: MakeCluster, value: str, code: str, said: str) -> None:
    trial = with_ib(cluster)
    trial.start(env={NCCL: value})

    assert (code, [0, 1]) == trial.verdict()
    assert said in trial.job.verdict.sentence


def test_nccl_spreads_no_data_over_what_peers_do_not_reach(cluster: MakeCluster) -> None:
    """Its bootstrap would pass by eth0, and the first collective hang in storage0's socket."""
    trial = cluster(2, python=TORCH)
    add(trial.hosts[1], "storage0", "10.99.7.1/24")
    for host in trial.hosts:
        host.environment["GPU"] = "nvidia0"
    trial.starts()
    assert {NCCL: "=eth0"} == agreed(trial, 1).env
    why = "by itself node 1 (n1)'s NCCL takes storage0 10.99.7.1, which node 0 (n0) cannot reach"
    assert why == agreed(trial, 1).why[NCCL]


def of_docker(cluster: MakeCluster) -> Cluster:
    """Two hosts without GPUs, one of whose own name leads to a bridge of its own: what Gloo takes.

    Of two ranks the one with the higher address connects, so the bridge has a low one.
    """
    trial = cluster(2, python=TORCH)
    add(trial.hosts[1], "docker0", "10.7.0.1/16")
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.7.0.1"})
    return trial


def test_gloo_is_led_to_the_interface_that_works(cluster: MakeCluster) -> None:
    """One word for all nodes, for it changes nothing where it is not needed."""
    trial = of_docker(cluster)
    trial.starts()
    assert [{GLOO: "eth0"}] * 2 == [agreed(trial, node).env for node in range(2)]
    assert "by itself node 1 (n1)'s Gloo takes docker0 10.7.0.1" in agreed(trial, 0).why[GLOO]


@pytest.mark.fault("gloo-interface-wrong")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("docker0", "node 1 (n1)'s Gloo takes docker0 10.7.0.1, which node 0 (n0) cannot reach"),
        ("eth", "Gloo finds no interface: GLOO_SOCKET_IFNAME=eth: no interface is called 'eth'"),
    ],
)
def test_what_was_set_for_gloo_is_not_overridden(cluster: MakeCluster, value: str, said: str) -> None:
    trial = of_docker(cluster)
    start_with(trial, value)

    assert ("gloo-interface-wrong", [1]) == trial.verdict()
    assert said in trial.job.verdict.sentence


@pytest.mark.slow
def test_with_what_the_gate_sets_torch_trains(cluster: MakeCluster) -> None:
    """Real ranks on both hosts add up; by itself Gloo would have told its peer the wrong address."""
    trial = of_docker(cluster)
    trial.starts()

    assert ["10.7.0.1"] == taken(trial.hosts[1], "torch", {})
    ranks = [rank(host, node, agreed(trial, node).env) for node, host in enumerate(trial.hosts)]
    assert ["sum 2\n"] * 2 == [each.communicate(timeout=120)[0] for each in ranks]


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("172.17.0.1/16", ""),
        pytest.param("10.7.0.1/16", "which node 0 (n0) cannot reach (unreachable); eth0 works", marks=WRONG),
        pytest.param(
            "fd00::7/64",
            "which node 0 (n0) cannot reach (Gloo joins no IPv6 to 10.77.0.1); eth0 works",
            marks=WRONG,
        ),
    ],
)
def test_the_gate_and_torch_say_the_same(cluster: MakeCluster, address: str, said: str) -> None:
    """A bridge that leads nowhere does no harm where it is node 1 that connects, from the higher address."""
    trial = cluster(2, python=TORCH)
    add(trial.hosts[1], "docker0", address)
    start_with(trial, "docker0")
    end = Exit.MISCONFIGURED if said else Exit.OK
    assert {end} == {gate.wait() for gate in trial.gates.values()}
    verdicts = trial.job.bundle.verdicts
    assert [said][: bool(said)] == [each.sentence.partition(", ")[2] for each in verdicts]

    ranks = [rank(trial.hosts[0], 0, {}), rank(trial.hosts[1], 1, {GLOO: "docker0"})]
    try:
        output, _ = ranks[0].communicate(timeout=120)  # rank 1 may well wait for a minute more
        assert ("" if said else "sum 2\n") == output
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def start_with(trial: Cluster, value: str) -> None:
    """Node 1 alone has been told an interface for Gloo."""
    trial.start(0)
    trial.start(1, env={GLOO: value})


def rank(host: Host, number: int, env: dict[str, str]) -> subprocess.Popen[str]:
    """One of two, of real torch."""
    where = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": str(number)}
    words = [*host.words, TORCH, "-c", SUM]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, **where, **env})
