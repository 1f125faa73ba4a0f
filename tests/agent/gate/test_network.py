"""Faults between hosts: real namespaces, a real switch, real packet filters, real gates."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any, Callable

import pytest
from tests.agent.gate.clusters import GATE_PORT, MASTER_PORT, Cluster, Make, MakeCluster
from tests.agent.gate.jobs import COME, Job, wait_for

from ddplaunch.agent.contract import Exit

SERVE_HTTP = "from http.server import *; HTTPServer(('', 8080), BaseHTTPRequestHandler).serve_forever()"


@pytest.fixture(name="cluster")
def _cluster(network: Make, job: Job) -> Callable[..., Cluster]:
    """A function that makes a Cluster of so many hosts."""
    return lambda count, **changes: Cluster(job, network(count), **changes)


def test_hosts_that_reach_each_other_pass(cluster: MakeCluster) -> None:
    """Three hosts that know each other by name pass; node 0 is known by the name in the plan."""
    trial = cluster(3)
    trial.start(hub="n0")

    assert [Exit.OK] * 3 == trial.end(), [gate.output for gate in trial.gates]
    assert "node 0 is n0:29500" in trial.gates[2].output


def test_the_address_of_node_zero_is_learnt(cluster: MakeCluster) -> None:
    """Without a name in the plan, node 0 is where the others reached its hub, though it came by loopback."""
    trial = cluster(2, master_addr=None)
    trial.job.hub(trial.plan, address=None, port=GATE_PORT, host=trial.hosts[0])
    for node, address in enumerate(("127.0.0.1", trial.hosts[0].address)):
        where = f"{address}:{GATE_PORT}"
        trial.gates.append(trial.job.gate(trial.plan, node, hub=where, host=trial.hosts[node]))

    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]
    assert f"node 0 is {trial.hosts[0].address}:29500" in trial.gates[1].output


@pytest.mark.fault("master-is-loopback")
def test_the_masters_name_is_loopback_on_one_node(cluster: MakeCluster) -> None:
    """127.0.1.1 in one node's hosts file is found by its address on that node alone."""
    trial = cluster(3)
    trial.hosts[1].hosts({"n0": "127.0.1.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.start()

    assert [Exit.MISCONFIGURED] * 3 == trial.end()
    assert trial.verdict() == ("master-is-loopback", [1])
    assert "node 1 (n1) resolves n0 to 127.0.1.1" in trial.job.verdict.sentence
    assert "give it the address that the other nodes see" in trial.job.verdict.hint
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.mended()


@pytest.mark.fault("master-is-not-node-zero")
def test_the_job_names_another_node_as_its_master(cluster: MakeCluster) -> None:
    """Every node looks there in vain; left out, as the hint says, node 0 is found."""
    trial = cluster(3, master_addr="10.77.0.3")
    trial.start()

    assert [Exit.MISCONFIGURED] * 3 == trial.end()
    assert trial.verdict() == ("master-is-not-node-zero", [0, 1, 2])
    assert "it is node 2 (n2)'s" in trial.job.verdict.sentence
    assert "leave `rendezvous.address` out" in trial.job.verdict.hint
    trial.plan = replace(trial.plan, master_addr=None)
    trial.mended()


@pytest.mark.fault("dns-disagrees")
def test_the_masters_name_leads_to_another_node(cluster: MakeCluster) -> None:
    """An old address in one node's hosts file: the node is named, and whose address it is."""
    trial = cluster(3)
    trial.hosts[1].hosts({"n0": "10.77.0.3", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("dns-disagrees", [1])
    assert "it is node 2 (n2)'s" in trial.job.verdict.sentence
    assert "look for the name in /etc/hosts and DNS on that node" in trial.job.verdict.hint
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.mended()


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
def test_the_hubs_name_is_loopback_on_one_node(cluster: MakeCluster) -> None:
    """A node that looks for the hub on itself says so within seconds: nobody else can know."""
    trial = cluster(2)
    trial.hosts[1].hosts({"n0": "127.0.1.1", "n1": "10.77.0.2"})
    trial.start(hub="n0", only=range(1, 2))

    assert [Exit.MISCONFIGURED] == [gate.wait(12) for gate in trial.gates]
    assert "master-is-loopback: node 1 (n1) resolves n0 to 127.0.1.1" in trial.gates[0].output


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
def test_a_nodes_own_name_is_loopback(cluster: MakeCluster) -> None:
    """Debian's `127.0.1.1 name` makes Gloo announce an address that no peer reaches."""
    trial = cluster(2)
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "127.0.1.1"})
    trial.start()

    assert [Exit.MISCONFIGURED] * 2 == trial.end()
    assert trial.verdict() == ("master-is-loopback", [1])


@pytest.mark.whole
def test_an_own_name_does_not_matter_when_gloo_is_told_its_interface(cluster: MakeCluster) -> None:
    """With GLOO_SOCKET_IFNAME set, the same hosts file breaks nothing."""
    trial = cluster(2)
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "127.0.1.1"})
    trial.start(env={"GLOO_SOCKET_IFNAME": "eth0"})

    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]


@pytest.mark.fault("dns-not-found")
def test_a_name_that_one_node_does_not_know(cluster: MakeCluster) -> None:
    """The node that cannot resolve the master is named, within seconds after all are there."""
    trial = cluster(2)
    trial.hosts[1].hosts({"n1": "10.77.0.2"})
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait(15) for gate in trial.gates]
    assert trial.verdict() == ("dns-not-found", [1])


def test_a_name_that_appears_in_time(cluster: MakeCluster) -> None:
    """A name that comes up while the job waits for a node anyway is no failure."""
    trial = cluster(2)
    trial.hosts[0].hosts({"n1": "10.77.0.2"})
    trial.start(only=range(1))
    trial.gates[0].says("cannot resolve n0")
    trial.hosts[0].hosts({"n0": "10.77.0.1", "n1": "10.77.0.2"})
    trial.gates[0].says("now passing, after")
    where = f"{trial.hosts[0].address}:{GATE_PORT}"
    trial.gates.append(trial.job.gate(trial.plan, 1, hub=where, host=trial.hosts[1]))

    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]


@pytest.mark.fault("dns-unanswered")
def test_a_name_server_that_does_not_answer(cluster: MakeCluster) -> None:
    """Silence of the name server is told from a name that does not exist."""
    trial = cluster(2)
    (trial.hosts[1].files / "nsswitch.conf").write_text("hosts: files dns\n")
    (trial.hosts[1].files / "resolv.conf").write_text("nameserver 10.77.0.1\noptions timeout:1 attempts:1\n")
    trial.hosts[0].firewall("udp dport 53 drop")
    trial.hosts[1].hosts({"n1": "10.77.0.2"})
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait(20) for gate in trial.gates]
    assert trial.verdict() == ("dns-unanswered", [1])


@pytest.mark.fault("port-filtered")
def test_a_firewall_that_drops_the_master_port(cluster: MakeCluster) -> None:
    """One dropped port among open ones is named, with one that answers."""
    trial = cluster(3)
    trial.hosts[0].firewall(f"tcp dport {MASTER_PORT} drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("port-filtered", [0])
    assert re.search(r"port 29500: no answer in \d+ s while port", trial.job.verdict.sentence)
    trial.hosts[0].open()
    trial.mended()


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_a_firewall_that_drops_everything_between_two_nodes(cluster: MakeCluster) -> None:
    """Two of three nodes that do not reach each other, in either direction, are both named."""
    trial = cluster(3)
    trial.hosts[2].firewall("ip saddr 10.77.0.2 drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("port-filtered", [1, 2])
    assert "nor the other way round" in trial.job.verdict.sentence


@pytest.mark.fault("port-rejected")
def test_a_firewall_that_rejects_the_master_port(cluster: MakeCluster) -> None:
    """An answer by RST is told from silence."""
    trial = cluster(2)
    trial.hosts[0].firewall(f"ip saddr 10.77.0.2 tcp dport {MASTER_PORT} reject with tcp reset")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == trial.end()
    assert trial.verdict() == ("port-rejected", [0])
    trial.hosts[0].open()
    trial.mended()


@pytest.mark.fault("network-one-way")
def test_connections_in_one_direction_only(cluster: MakeCluster) -> None:
    """A node that takes no connections but makes them is named: its peers' all fail, its own all work."""
    trial = cluster(3)
    trial.hosts[2].firewall("tcp flags & (syn | ack) == syn drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("network-one-way", [2])
    assert "the reverse works" in trial.job.verdict.sentence


@pytest.mark.fault("host-unreachable")
def test_no_route_to_a_peer(cluster: MakeCluster) -> None:
    """A missing route is said to be one."""
    trial = cluster(3)
    subprocess.run(
        ["ip", "-n", trial.hosts[1].namespace, "route", "add", "unreachable", "10.77.0.3/32"], check=True
    )
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("host-unreachable", [1, 2])
    assert trial.job.verdict.sentence.startswith("node 1 (n1) -> node 2 (n2, 10.77.0.3) port")


@pytest.mark.fault("mtu-black-hole")
def test_large_packets_vanish_between_peers(cluster: MakeCluster) -> None:
    """Where small messages pass and large ones do not, the MTU is named, not the peer's silence."""
    trial = cluster(3)
    trial.hosts[2].firewall("ip saddr 10.77.0.2 meta length > 1000 drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert trial.verdict() == ("mtu-black-hole", [1, 2])


@pytest.mark.whole
@pytest.mark.fault("mtu-black-hole")
def test_large_packets_vanish_on_the_way_to_the_hub(cluster: MakeCluster) -> None:
    """A check-in that never arrives though its announcement did is a black hole, told before the deadline."""
    trial = cluster(2)
    trial.hosts[0].firewall("ip saddr 10.77.0.2 meta length > 1000 drop")
    trial.start()

    assert trial.gates[0].wait(20) == Exit.NODE_AT_FAULT
    assert (trial.job.verdict.code, trial.job.verdict.nodes) == ("mtu-black-hole", [1])


@pytest.mark.fault("port-filtered")
def test_a_firewall_that_drops_the_hubs_port(cluster: MakeCluster) -> None:
    """Other ports of that host answer, so nothing is gained by waiting for the way to it."""
    trial = cluster(2, gate={"timeout": 90.0})
    trial.hosts[0].firewall(f"tcp dport {GATE_PORT} ip saddr != 10.77.0.1 drop")
    trial.start()

    assert Exit.NODE_AT_FAULT == trial.gates[1].wait(40)
    said = trial.gates[1].output
    assert "port-filtered: node 1 (n1) -> the hub at 10.77.0.1:29400: no answer for" in said
    assert "while other ports there answer: a firewall drops this one" in said


@pytest.mark.whole
@pytest.mark.fault("port-rejected")
def test_a_firewall_that_rejects_the_hubs_port(cluster: MakeCluster) -> None:
    """It answers by ICMP, as no host does for its own ports, so nobody waits for the hub to come up."""
    trial = cluster(2, gate={"timeout": 90.0})
    trial.hosts[0].firewall(f"tcp dport {GATE_PORT} ip saddr != 10.77.0.1 reject")
    trial.start()

    assert Exit.NODE_AT_FAULT == trial.gates[1].wait(40)
    said = trial.gates[1].output
    assert "port-rejected: node 1 (n1) -> the hub at 10.77.0.1:29400: rejected for" in said
    assert "look for a REJECT rule on the way to the port" in said


@pytest.mark.fault("stranger-listens")
def test_something_between_the_nodes_answers(cluster: MakeCluster) -> None:
    """A transparent proxy on one node, as service meshes bring them, is told from node 0."""
    trial = cluster(2)
    trial.hosts[1].firewall(f"tcp dport {MASTER_PORT} redirect to :8080", hook="nat")
    words = [*trial.hosts[1].words, sys.executable, "-c", SERVE_HTTP]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as proxy:
        listening = ["ip", "netns", "exec", trial.hosts[1].namespace, "ss", "-Htln", "sport = 8080"]
        wait_for(lambda: subprocess.run(listening, capture_output=True, check=True).stdout)
        trial.start()
        codes = trial.end()
        proxy.kill()

    assert [Exit.NODE_AT_FAULT] * 2 == codes
    assert trial.verdict() == ("stranger-listens", [0])
    assert "it speaks HTTP" in trial.job.verdict.sentence


@pytest.mark.fault("node-missing")
def test_a_node_that_does_not_reach_the_hub(cluster: MakeCluster) -> None:
    """At the deadline the cut-off node says what it met, and the hub who never came."""
    trial = cluster(2, gate={"timeout": COME})
    trial.hosts[0].firewall("ip saddr 10.77.0.2 drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == trial.end()
    assert (trial.job.verdict.code, trial.job.verdict.nodes) == ("node-missing", [1])
    assert "port-filtered: node 1 (n1) -> the hub at 10.77.0.1:29400: no answer" in trial.gates[1].output


@pytest.mark.fault("shm-too-small")
def test_shared_memory_is_small_on_one_node(cluster: MakeCluster) -> None:
    """A small /dev/shm is found on the node that has it."""
    trial = cluster(2, resources={"shm": 64 << 20})
    trial.hosts[1].environment["SHM_SIZE"] = "16M"
    trial.hosts[0].environment["SHM_SIZE"] = "64M"
    trial.start()

    assert [Exit.MISCONFIGURED] * 2 == trial.end()
    assert trial.verdict() == ("shm-too-small", [1])
    assert trial.job.verdict.sentence == "node 1 (n1): /dev/shm is 16 MiB; wanted: 64 MiB"


@pytest.mark.fault("disk-full")
def test_a_disk_that_is_full_on_one_node(cluster: MakeCluster, tmp_path: Any) -> None:
    """A temporary folder without room is found by writing to it."""
    trial = cluster(2)
    (tmp_path / "tmp").mkdir()
    trial.hosts[1].environment["FULL_DISK"] = str(tmp_path / "tmp")
    trial.start(env={"TMPDIR": str(tmp_path / "tmp")})

    assert [Exit.NODE_AT_FAULT] * 2 == trial.end()
    assert trial.verdict() == ("disk-full", [1])
