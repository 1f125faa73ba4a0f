"""Faults between hosts: real namespaces, a real switch, real packet filters, real gates."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.gate.clusters import GATE_PORT, MASTER_PORT, Cluster, Make, MakeCluster
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.jobs import COME, Agent, Job, make_plan, wait_for

from ddplaunch.agent.contract import Exit

SERVE_HTTP = "from http.server import *; HTTPServer(('', 8080), BaseHTTPRequestHandler).serve_forever()"


def test_hosts_that_know_each_other_by_name_pass(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.start(hub="n0")

    trial.starts()
    assert "node 0 is n0:29500" in trial.gates[2].output


def test_without_a_name_node_zero_is_where_the_others_reached_its_hub(cluster: MakeCluster) -> None:
    trial = cluster(2, master_addr=None)
    trial.start(0, hub="127.0.0.1")
    trial.start(1)

    trial.starts()
    assert f"node 0 is {trial.hosts[0].address}:29500" in trial.gates[1].output


@pytest.mark.fault("master-is-loopback")
def test_a_node_for_which_the_masters_name_is_loopback_is_named(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.hosts[1].hosts({"n0": "127.0.1.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})

    assert ("master-is-loopback", [1]) == trial.verdict()
    assert "node 1 (n1) resolves n0 to 127.0.1.1" in trial.job.verdict.sentence
    assert "give it the address that the other nodes see" in trial.job.verdict.hint
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.mended()


@pytest.mark.fault("master-is-not-node-zero")
def test_a_job_that_names_another_node_as_master_is_told_whose_address_that_is(
    cluster: MakeCluster,
) -> None:
    trial = cluster(3, master_addr="10.77.0.3")

    assert ("master-is-not-node-zero", [0, 1, 2]) == trial.verdict()
    assert "it is node 2 (n2)'s" in trial.job.verdict.sentence
    assert "leave `rendezvous.address` out" in trial.job.verdict.hint
    trial.plan = replace(trial.plan, master_addr=None)
    trial.mended()


@pytest.mark.whole
@pytest.mark.fault("dns-disagrees")
def test_a_node_that_an_old_address_leads_to_another_node_is_named(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.hosts[1].hosts({"n0": "10.77.0.3", "n1": "10.77.0.2", "n2": "10.77.0.3"})

    assert ("dns-disagrees", [1]) == trial.verdict()
    assert "it is node 2 (n2)'s" in trial.job.verdict.sentence
    assert "look for the name in /etc/hosts and DNS on that node" in trial.job.verdict.hint
    trial.hosts[1].hosts({"n0": "10.77.0.1", "n1": "10.77.0.2", "n2": "10.77.0.3"})
    trial.mended()


@pytest.mark.fault("dns-not-found")
def test_the_node_that_cannot_resolve_the_master_is_named(cluster: MakeCluster) -> None:
    trial = cluster(2)
    trial.hosts[1].hosts({"n1": "10.77.0.2"})

    assert ("dns-not-found", [1]) == trial.verdict()


@pytest.mark.fault("dns-unanswered")
def test_a_silent_name_server_is_told_from_a_missing_name(cluster: MakeCluster) -> None:
    trial = cluster(2)
    (trial.hosts[1].files / "nsswitch.conf").write_text("hosts: files dns\n")
    (trial.hosts[1].files / "resolv.conf").write_text("nameserver 10.77.0.1\noptions timeout:1 attempts:1\n")
    trial.hosts[0].firewall("udp dport 53 drop")
    trial.hosts[1].hosts({"n1": "10.77.0.2"})

    assert ("dns-unanswered", [1]) == trial.verdict()


@pytest.mark.fault("port-filtered")
def test_a_dropped_port_is_named_with_one_that_answers(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.hosts[0].firewall(f"tcp dport {MASTER_PORT} drop")

    assert ("port-filtered", [0]) == trial.verdict()
    assert re.search(r"port 29500: no answer in \d+ s while port", trial.job.verdict.sentence)
    trial.hosts[0].open()
    trial.mended()


@pytest.mark.fault("port-rejected")
def test_a_rejected_port_is_told_from_a_dropped_one(cluster: MakeCluster) -> None:
    trial = cluster(2)
    trial.hosts[0].firewall(f"ip saddr 10.77.0.2 tcp dport {MASTER_PORT} reject with tcp reset")

    assert ("port-rejected", [0]) == trial.verdict()
    trial.hosts[0].open()
    trial.mended()


@pytest.mark.fault("network-one-way")
def test_a_node_that_makes_connections_and_takes_none_is_named(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.hosts[2].firewall("tcp flags & (syn | ack) == syn drop")

    assert ("network-one-way", [2]) == trial.verdict()
    assert "the reverse works" in trial.job.verdict.sentence


@pytest.mark.fault("host-unreachable")
def test_a_missing_route_is_said_to_be_one(cluster: MakeCluster) -> None:
    trial = cluster(3)
    subprocess.run(
        ["ip", "-n", trial.hosts[1].namespace, "route", "add", "unreachable", "10.77.0.3/32"], check=True
    )

    assert ("host-unreachable", [1, 2]) == trial.verdict()
    assert trial.job.verdict.sentence.startswith("node 1 (n1) -> node 2 (n2, 10.77.0.3) port")


@pytest.mark.fault("mtu-black-hole")
def test_where_only_large_messages_vanish_the_mtu_is_named(cluster: MakeCluster) -> None:
    trial = cluster(3)
    trial.hosts[2].firewall("ip saddr 10.77.0.2 meta length > 1000 drop")

    assert ("mtu-black-hole", [1, 2]) == trial.verdict()


@pytest.mark.fault("port-filtered")
def test_a_dropped_port_of_the_hub_is_told_before_the_deadline(cluster: MakeCluster) -> None:
    trial = cluster(2, gate={"timeout": 90.0})
    trial.hosts[0].firewall(f"tcp dport {GATE_PORT} ip saddr != 10.77.0.1 drop")
    trial.start()

    assert Exit.NODE_AT_FAULT == trial.gates[1].wait(40)
    said = trial.gates[1].output
    assert "port-filtered: node 1 (n1) -> the hub at 10.77.0.1:29400: no answer for" in said
    assert "while other ports there answer: a firewall drops this one" in said


@pytest.mark.fault("stranger-listens")
def test_a_transparent_proxy_is_told_from_node_zero(cluster: MakeCluster) -> None:
    trial = cluster(2)
    trial.hosts[1].firewall(f"tcp dport {MASTER_PORT} redirect to :8080", hook="nat")
    words = [*trial.hosts[1].words, sys.executable, "-c", SERVE_HTTP]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as proxy:
        listening = ["ip", "netns", "exec", trial.hosts[1].namespace, "ss", "-Htln", "sport = 8080"]
        wait_for(lambda: subprocess.run(listening, capture_output=True, check=True).stdout)
        trial.start()
        found = trial.verdict()
        proxy.kill()

    assert ("stranger-listens", [0]) == found
    assert "it speaks HTTP" in trial.job.verdict.sentence


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_node_that_is_cut_off_says_what_it_met_and_the_hub_who_never_came(cluster: MakeCluster) -> None:
    trial = cluster(2, gate={"timeout": COME})
    trial.hosts[0].firewall("ip saddr 10.77.0.2 drop")
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait() for gate in trial.gates.values()]
    assert (trial.job.verdict.code, trial.job.verdict.nodes) == ("node-missing", [1])
    assert "port-filtered: node 1 (n1) -> the hub at 10.77.0.1:29400: no answer" in trial.gates[1].output


@pytest.mark.fault("shm-too-small")
def test_the_node_whose_shared_memory_is_small_is_named(cluster: MakeCluster) -> None:
    trial = cluster(2, resources={"shm": 64 << 20})
    trial.hosts[1].environment["SHM_SIZE"] = "16M"
    trial.hosts[0].environment["SHM_SIZE"] = "64M"

    assert ("shm-too-small", [1]) == trial.verdict()
    assert trial.job.verdict.sentence == "node 1 (n1): /dev/shm is 16 MiB; wanted: 64 MiB"


@pytest.mark.fault("disk-full")
def test_the_node_whose_temporary_folder_is_full_is_named(cluster: MakeCluster, tmp_path: Any) -> None:
    trial = cluster(2)
    (tmp_path / "tmp").mkdir()
    trial.hosts[1].environment["FULL_DISK"] = str(tmp_path / "tmp")
    trial.start(env={"TMPDIR": str(tmp_path / "tmp")})

    assert ("disk-full", [1]) == trial.verdict()


EVERYTHING = "net.ipv4.ip_local_port_range=1024 65535"
RESERVE = f"sysctl net.ipv4.ip_local_reserved_ports={MASTER_PORT}"


def sysctl(host: Host, setting: str) -> None:
    """Of its own network namespace."""
    run("ip", "netns", "exec", host.namespace, "sysctl", "-qw", setting)


@pytest.mark.whole
def test_a_job_finds_its_ports_where_all_are_the_kernels(network: Make, job: Job) -> None:
    (host,) = network(1)
    sysctl(host, EVERYTHING)
    plan = make_plan(nodes=2)
    job.hub(plan, host=host)
    gates = [job.gate(plan, node, host=host) for node in range(2)]

    assert [Exit.OK] * 2 == [gate.wait() for gate in gates], [gate.output for gate in gates]


@pytest.mark.whole
@pytest.mark.fault("port-ephemeral")
def test_a_given_port_that_the_kernel_may_hand_out_is_noted_with_what_mends_it(cluster: MakeCluster) -> None:
    gate = _passed(cluster(2))

    assert f"{MASTER_PORT} is free now, but lies where the kernel hands out ports (1024-65535)" in gate.output
    assert f"`{RESERVE}` on node 0" in gate.output


@pytest.mark.whole
def test_a_given_port_that_is_left_out_as_the_hint_says_is_no_note(cluster: MakeCluster) -> None:
    trial = cluster(2)
    sysctl(trial.hosts[0], RESERVE.partition(" ")[2])
    gate = _passed(trial)

    assert "hands out" not in gate.output


def _passed(trial: Cluster) -> Agent:
    sysctl(trial.hosts[0], EVERYTHING)
    trial.starts()
    return trial.gates[0]
