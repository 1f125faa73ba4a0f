"""Real faults that pass while the gate waits: the job starts, and its logs say what was waited for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.agent.gate import names
from tests.agent.gate.clusters import GATE_PORT, MASTER_PORT, Cluster, Make, MakeCluster
from tests.agent.gate.jobs import Job

from ddplaunch.agent.contract import Env

LASTS = 6.0
"""Seconds: what is waited for is said every few."""


@pytest.fixture(name="cluster")
def _cluster(network: Make, job: Job) -> MakeCluster:
    """A function that makes a job on so many hosts, which have no name for the master unless one is given."""
    return lambda count, **changes: Cluster(job, network(count), **{"master_addr": None, **changes})


def only(texts: list[str], begin: str) -> str:
    """The one sentence that begins so."""
    (found,) = (text for text in texts if text.startswith(begin))
    return found


def test_node_zeros_name_may_appear_late(cluster: MakeCluster, tmp_path: Path) -> None:
    """The name server denies it at first. Who needs it goes on asking, and says for how long it did."""
    trial = cluster(2)
    known = tmp_path / "known"
    known.touch()
    serve = [*trial.hosts[0].words, sys.executable, names.__file__, str(known)]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE)
    trial.ends_with(server)
    (trial.hosts[1].files / "nsswitch.conf").write_text("hosts: files dns\n")
    (trial.hosts[1].files / "resolv.conf").write_text(f"nameserver {trial.hosts[0].address}\n")
    trial.hosts[1].hosts({"n1": "10.77.0.2"})
    trial.start(0)
    trial.hub_says("node 0 (n0) checked in")  # node 1 is as late as the name from here on
    trial.start(1, hub="n0")
    time.sleep(LASTS)
    trial.gates[1].says("waiting for the hub on node 0")
    (tmp_path / "new").write_text("10.77.0.1 n0\n")
    (tmp_path / "new").replace(known)

    told = trial.starts()
    assert "node 1 (n1) checked in, " in only(told, "node 1 (n1) checked in")
    assert "until then it did not reach the hub: n0: " in only(told, "node 1 (n1) checked in")
    waits = [text for text in told if text.startswith("waiting for node 1 (n1) (")]
    assert waits
    assert all(text.endswith(" of at most 300 s)") for text in waits)
    about = [text for text in told if text.startswith("note: ") and not text.startswith("note: cpu-busy")]
    assert not any("n0" in text for text in about), "the name is known by now"
    assert "reached the hub; until now: n0: " in trial.gates[1].output


def test_a_node_that_comes_late_is_waited_for_and_the_wait_is_said(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.start(0, 1)
    for node in (0, 1):
        trial.hub_says(f"node {node} (n{node}) checked in")
    time.sleep(LASTS)
    trial.start(2)

    told = trial.starts()
    assert "s after the first" in only(told, "node 2 (n2) checked in, ")
    assert any(text.startswith("waiting for node 2 (n2) (") for text in told)
    assert "waiting for node 2 (n2) (" in trial.gates[1].output


@pytest.mark.whole
def test_a_master_port_that_is_freed_while_a_node_is_awaited_is_no_fault(cluster: MakeCluster) -> None:
    trial = cluster(2)
    holder = trial.hold(MASTER_PORT)
    trial.start(0)
    trial.hub_says("this may be temporary: node 0 (n0): port 29500 is held by pid ")
    trial.gates[0].says("waiting for node 1 (n1); node 0 (n0): port 29500 is held by pid ")
    holder.kill()
    trial.hub_says("node 0 (n0): 29500 is free")
    trial.start(1)

    told = trial.starts()
    assert f"is held by pid {holder.pid} ({sys.executable}" in only(
        told, "this may be temporary: node 0 (n0): "
    )
    assert {"1"} <= set(trial.job.bundle.passed)
    assert "master" in trial.job.bundle.passed["1"]


def test_a_master_port_that_an_earlier_attempt_holds_is_given_time(cluster: MakeCluster) -> None:
    trial = cluster(2)
    holder = trial.hold(MASTER_PORT, **{Env.JOB: "trial"})
    trial.start(0, 1)
    for gate in trial.gates.values():
        gate.says("waiting for node 0 (n0): port 29500 is held by pid ")
    time.sleep(5.0)  # beyond what anybody else is given
    holder.kill()

    assert "29500 is free" in only(trial.starts(), "it passed after ")


def test_a_disk_freed_while_a_node_is_awaited_is_no_fault(cluster: MakeCluster, tmp_path: Path) -> None:
    trial = cluster(2)
    (tmp_path / "tmp").mkdir()
    trial.hosts[0].environment["FULL_DISK"] = str(tmp_path / "tmp")
    trial.start(0, env={"TMPDIR": str(tmp_path / "tmp")})
    trial.hub_says(
        f"this may be temporary: node 0 (n0): cannot write to {tmp_path / 'tmp'}: No space left on device"
    )
    target = ["nsenter", "--target", str(trial.gates[0].process.pid), "--mount"]
    place = str(tmp_path / "tmp")
    subprocess.run([*target, "mount", "-o", "remount,size=64M", place], check=True)
    subprocess.run([*target, "rm", f"{place}/full"], check=True)
    trial.hub_says("it passed after ")
    trial.start(1)

    assert f"free in {place}" in only(trial.starts(), "it passed after ")


@pytest.mark.whole
def test_a_hubs_port_that_opens_late_is_no_fault(cluster: MakeCluster) -> None:
    trial = cluster(2)
    trial.hosts[0].firewall(f"tcp dport {GATE_PORT} ip saddr 10.77.0.2 quota until 200 bytes drop")
    trial.start(0, 1)

    assert "until then it did not reach the hub" in only(trial.starts(), "node 1 (n1) checked in")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("quota until 330 bytes drop", "packets are lost, "),
        ("quota until 100 bytes reject with tcp reset", "refused for "),
    ],
)
def test_a_path_between_nodes_that_opens_late_is_a_note(cluster: MakeCluster, rule: str, said: str) -> None:
    """A network's rules arrive seconds after the node: the first packets to a port do not come through."""
    trial = cluster(3)
    trial.hosts[0].firewall(f"tcp dport {MASTER_PORT} ip saddr 10.77.0.2 {rule}")
    trial.start(0, 1, 2)

    note = only([text for text in trial.starts() if "cpu-busy" not in text], "note: ")
    assert (
        note.startswith(f"note: node 1 (n1) -> node 0 (n0, n0) port {MASTER_PORT}: ") or "10.77.0.1" in note
    )
    assert said in note
