"""Real faults between the nodes of a Slurm job, before it starts: the verdict, the node, and how soon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog
from tests.cluster.slurm.gate_jobs import (
    BY_NAME,
    GATE,
    GATE_ONLY,
    MASTER,
    Start,
    flush,
    mended,
    names,
    notes,
    seconds,
    verdict,
)
from tests.cluster.slurm.jobs import Job

from ddplaunch.agent.contract import Files

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
AHEAD = f"""
[ "$SLURMD_NODENAME" = n3 ] || exit 0
printf 'export %s\\n' LD_PRELOAD={FAKETIME} FAKETIME=+61s DONT_FAKE_MONOTONIC=1
"""


# --- nothing is wrong


def test_a_healthy_job_passes_soon(start: Start) -> None:
    """Three nodes: from the hub's start to the release, little more than a second if nobody else is busy."""
    job = start(GATE_ONLY)

    assert [] == notes(job)
    events = job.bundle().events
    (release,) = (event for event in events if event.kind == "release")
    assert release.at - events[0].at < BUSY * 6, "\n".join(event.text for event in events)


@pytest.mark.whole
def test_a_bridge_of_containers_disturbs_nobody(cluster: Cluster, start: Start) -> None:
    """docker0 has the same address on every node, and leads nowhere."""
    for node in cluster.nodes:
        for words in (
            "link add docker0 type bridge",
            "addr add 172.17.0.1/16 dev docker0",
            "link set docker0 up",
        ):
            cluster.run(node, ["ip", *words.split()])
    job = start(GATE_ONLY)

    assert [] == notes(job)
    agreed = job.bundle().agreed
    assert agreed is not None
    assert "10.99.0.11" == agreed.master_addr


# --- ports and packets


@pytest.mark.fault("port-filtered")
def test_a_dropped_port_is_named_with_one_that_answers(cluster: Cluster, start: Start) -> None:
    """The master's port alone is closed: its node is named, and a port that answers."""
    cluster.nft("n1", f"tcp dport {MASTER} drop")
    job = start()

    code, nodes, found = verdict(job)
    assert ("port-filtered", [0]) == (code, nodes)
    assert "(n1, 10.99.0.11) port 29500: no answer in 4 s while port" in found.sentence
    assert "open all TCP ports between the nodes" in found.hint
    assert seconds(job) < BUSY * 8
    flush(cluster, "n1")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("port-rejected")
@pytest.mark.parametrize(
    "answer",
    ["tcp reset", "icmpx type port-unreachable", "icmpx type admin-prohibited"],
)
def test_a_rejected_port_is_told_from_a_silent_one(cluster: Cluster, start: Start, answer: str) -> None:
    """A firewall that answers, in whatever way, is told from one that is silent, and from a missing route."""
    cluster.nft("n1", f"ip saddr 10.99.0.13 tcp dport {MASTER} reject with {answer}")
    job = start()

    code, nodes, found = verdict(job)
    assert ("port-rejected", [0]) == (code, nodes)
    assert "node 2 (n3) -> node 0 (n1, 10.99.0.11) port 29500" in found.sentence
    assert "look for a REJECT rule on the way" in found.hint
    assert seconds(job) < BUSY * 5
    assert "reject" in cluster.run("n1", ["nft", "list", "ruleset"]).stdout
    flush(cluster, "n1")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("network-one-way")
def test_connections_in_one_direction_only(cluster: Cluster, start: Start) -> None:
    """A node that makes connections and takes none."""
    cluster.nft("n3", "tcp flags & (syn | ack) == syn drop")
    job = start()

    code, nodes, found = verdict(job)
    assert ("network-one-way", [2]) == (code, nodes)
    assert "to node 2 (n3, 10.99.0.13)" in found.sentence
    assert (
        "look at the firewall, NetworkPolicy or security group of the node that is not reached" in found.hint
    )
    assert seconds(job) < BUSY * 8
    flush(cluster, "n3")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_a_node_that_only_slurm_reaches(cluster: Cluster, start: Start) -> None:
    """It cannot tell the hub what it met; what it prints goes by Slurm's own connections, and is heard."""
    cluster.nft("n3", "tcp dport 1024-60999 drop", hook="output")

    code, nodes, found = verdict(start(gate={"timeout": "15s"}))
    assert ("port-filtered", [2]) == (code, nodes)
    assert found.sentence.startswith("node 2 (n3) -> the hub at 10.99.0.11:")
    assert "drops the port: open it, or set `gate.port`" in found.hint
    flush(cluster, "n3")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_a_hub_that_only_slurm_reaches(cluster: Cluster, start: Start) -> None:
    """When nobody gets through, the firewall is node 0's."""
    cluster.nft("n1", "iifname eth0 tcp dport 1024-60999 drop")

    job = start(gate={"timeout": "15s"})
    job.said("ddplaunch verdict")

    assert ("port-filtered", [0]) == (job.verdict.code, job.verdict.nodes)
    assert job.verdict.sentence.endswith(": a firewall drops this one (and 1 more)")
    assert "drops the port: open it, or set `gate.port`" in job.verdict.hint
    flush(cluster, "n1")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("port-rejected")
def test_a_hub_whose_port_is_rejected(cluster: Cluster, start: Start) -> None:
    """A node takes that for a hub that is not there; the hub hears of it, and knows better."""
    cluster.nft("n1", "ip saddr 10.99.0.12 tcp dport 1024-60999 reject with tcp reset")

    code, nodes, found = verdict(start(gate={"timeout": "15s"}))
    assert ("port-rejected", [0]) == (code, nodes)
    assert re.search(r"node 1 \(n2\) -> the hub at .* refused for \d+ s although it listens", found.sentence)
    assert "look for a REJECT rule on the way to the port" in found.hint
    flush(cluster, "n1")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("mtu-black-hole")
def test_large_packets_vanish_between_two_nodes(cluster: Cluster, start: Start) -> None:
    """Both ends are named: which of them is at fault cannot be seen from there."""
    cluster.nft("n3", "ip saddr 10.99.0.12 meta length > 1000 drop")
    job = start()

    code, nodes, found = verdict(job)
    assert ("mtu-black-hole", [1, 2]) == (code, nodes)
    assert seconds(job) < BUSY * 8
    assert "test with `ping -M do -s 1472`" in found.hint
    flush(cluster, "n3")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("mtu-black-hole")
def test_large_packets_vanish_on_the_way_to_the_hub(cluster: Cluster, start: Start) -> None:
    """The node's check-in never arrives, though it said that it would come."""
    cluster.nft("n1", "ip saddr 10.99.0.12 meta length > 1000 drop")

    code, nodes, _ = verdict(start())
    assert ("mtu-black-hole", [1]) == (code, nodes)


@pytest.mark.whole
@pytest.mark.fault("host-unreachable")
def test_a_route_that_is_missing_is_told(cluster: Cluster, start: Start) -> None:
    """A route that is missing on one node, to one other."""
    cluster.run("n2", ["ip", "route", "add", "unreachable", "10.99.0.13"])
    try:
        code, nodes, found = verdict(start())
        asked = re.findall(r"`(ip route get) ADDRESS` on the first node", found.hint)[0].split()
        assert "No route to host" in cluster.run("n2", [*asked, "10.99.0.13"], check=False).stderr
    finally:
        cluster.run("n2", ["ip", "route", "del", "unreachable", "10.99.0.13"])
    assert ("host-unreachable", [1, 2]) == (code, nodes)
    mended(start)


# --- names


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
def test_node_zero_is_loopback_on_one_node(cluster: Cluster, start: Start) -> None:
    """The job uses the name, and one node's hosts file leads it to itself."""
    names(cluster, "n3", n1="127.0.1.1")

    code, nodes, found = verdict(start(**BY_NAME))
    assert ("master-is-loopback", [2]) == (code, nodes)
    assert found.sentence.startswith("node 2 (n3) resolves n1 to 127.0.1.1")
    names(cluster, "n3")
    mended(start, **BY_NAME)


@pytest.mark.whole
@pytest.mark.fault("master-is-loopback")
def test_a_nodes_own_name_is_loopback(cluster: Cluster, start: Start) -> None:
    """Gloo would announce it to the peers."""
    names(cluster, "n2", n2="127.0.1.1")

    code, nodes, found = verdict(start())
    assert ("master-is-loopback", [1]) == (code, nodes)
    assert found.sentence.startswith("node 1 (n2)'s own name n2 resolves to 127.0.1.1")
    assert "look for the name in /etc/hosts on that node" in found.hint
    names(cluster, "n2")
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("dns-disagrees")
def test_one_node_takes_another_for_node_zero(cluster: Cluster, start: Start) -> None:
    """An old address in one hosts file: the node is named, and whose address it is."""
    names(cluster, "n3", n1="10.99.0.12")

    code, nodes, found = verdict(start(**BY_NAME))
    assert ("dns-disagrees", [2]) == (code, nodes)
    assert found.sentence == (
        "node 2 (n3) would look for the master at n1 (10.99.0.12), which is not an address of "
        "node 0 (n1, 10.99.0.11): it is node 1 (n2)'s"
    )
    assert "nodes 0 (n1) and 1 (n2) resolve n1 to it" in found.facts
    assert "look for the name in /etc/hosts and DNS on that node" in found.hint
    names(cluster, "n3")
    mended(start, **BY_NAME)


@pytest.mark.whole
@pytest.mark.fault("master-is-not-node-zero")
def test_the_job_names_another_machine_as_its_master(start: Start) -> None:
    """The login node, say: nobody finds the master there."""
    job = start(rendezvous={"port": MASTER, "address": "10.99.0.1"})

    code, nodes, found = verdict(job)
    assert ("master-is-not-node-zero", [0, 1, 2]) == (code, nodes)
    assert "at 10.99.0.1, which is not an address of node 0 (n1, 10.99.0.11)" in found.sentence
    assert "leave `rendezvous.address` out" in found.hint
    mended(start)


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
def test_a_name_that_one_node_does_not_know(cluster: Cluster, start: Start) -> None:
    """The job uses the name, and the node reaches node 0 all the same: that is how its verdict is known."""
    names(cluster, "n3", n1=None)

    code, nodes, found = verdict(start(**BY_NAME))
    assert ("dns-not-found", [2]) == (code, nodes)
    (command,) = re.findall(r"`(getent hosts [^`]+)` on that node shows the same", found.hint)
    assert "" == cluster.run("n3", command.split(), check=False).stdout
    names(cluster, "n3")
    mended(start, **BY_NAME)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("address", "note"),
    [
        (None, "node 2 (n3) cannot resolve n1; it reaches node 0 at 10.99.0.11"),
        (
            "127.0.1.1",
            "node 2 (n3) resolves n1 to 127.0.1.1, which is itself; it reaches node 0 at 10.99.0.11",
        ),
        (
            "10.99.0.12",
            "node 2 (n3) resolves n1 to 10.99.0.12, which is not node 0; it reaches node 0 at 10.99.0.11",
        ),
    ],
)
def test_a_wrong_name_that_nobody_uses(
    cluster: Cluster, start: Start, address: str | None, note: str
) -> None:
    """Without a name in the job file node 0 is known by its address, and the wrong name is only a note."""
    names(cluster, "n3", n1=address)

    assert note in notes(start(GATE_ONLY))


# --- nodes and clocks


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_node_that_loses_power_at_the_gate(cluster: Cluster, start: Start) -> None:
    """It had checked in, and is gone before the others are there."""
    cluster.nft("n2", f"tcp dport {GATE} drop", hook="output")
    job = start(gate={"port": GATE, "timeout": "25s"})
    job.said("node 2 (n3) checked in")
    cluster.power_off("n3")
    job.said("node 2 (n3) went away")
    cluster.run("n2", ["nft", "flush", "ruleset"])
    job.said("ddplaunch verdict")

    assert ("node-missing", [2]) == (job.verdict.code, job.verdict.nodes)
    assert "node 2 (n3) checked in and then went away" in job.verdict.sentence
    faulty = job.folder / Files.FAULTY
    cluster.until(faulty.exists, "the hub has written which node is at fault", 10)
    assert "n3\n" == faulty.read_text()


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_node_on_which_slurm_does_not_start_the_step(
    cluster: Cluster, start: Start, task_prolog: TaskProlog
) -> None:
    """A task prolog that hangs: the node is named when waiting for it is over."""
    task_prolog('[ "$SLURMD_NODENAME" != n3 ] || sleep 60')
    job = start(gate={"timeout": "15s"})
    job.said("ddplaunch verdict")

    assert ("node-missing", [2]) == (job.verdict.code, job.verdict.nodes)
    assert "node 2 (n3) never came: waited 15 s; nodes 0 (n1) and 1 (n2) are here" == job.verdict.sentence
    job.said("each node said at the gate is in")
    assert "Killed" not in job.output  # srun, which would wait for that node once more
    assert "waiting for node 2" not in job.output.partition("own words")[2]  # the verdict has said it all


@pytest.mark.fault("clock-skew")
def test_a_node_whose_clock_is_ahead(start: Start, task_prolog: TaskProlog) -> None:
    """A minute, on one node: torchrun's c10d rendezvous would drop it."""
    task_prolog(AHEAD)
    job = start(rendezvous={"backend": "c10d", "port": MASTER})

    code, nodes, found = verdict(job)
    assert ("clock-skew", [2]) == (code, nodes)
    # A busy node's answer comes late, and its clock then seems a second less ahead.
    assert re.match(r"node 2 \(n3\)'s clock is (59|6\d) s ahead", found.sentence)
    assert "start its time service" in found.hint
    task_prolog("true")
    mended(start, rendezvous={"backend": "c10d", "port": MASTER})


@pytest.mark.fault("network-lossy")
def test_a_link_that_lets_little_through(cluster: Cluster, start: Start) -> None:
    """As a policer does, or a duplex that one end has wrong: all connects, nothing large arrives."""
    rule = "ip saddr 10.99.0.12 tcp dport 1024-60999 limit rate over 2 kbytes/second burst 12 kbytes drop"
    cluster.nft("n3", rule)

    code, nodes, found = verdict(start(gate={"timeout": "120s"}))
    assert ("network-lossy", [1, 2]) == (code, nodes)
    assert "`ip -s link` and `ethtool -S` on both nodes" in found.hint
    flush(cluster, "n3")
    mended(start)


@pytest.mark.whole
def test_a_link_that_loses_packets(cluster: Cluster, start: Start) -> None:
    """It is slow, and no firewall: the gate passes, or says what it is."""
    cluster.nft("n2", "numgen random mod 100 < 30 drop")
    job = start(GATE_ONLY, gate={"timeout": "120s"})

    job.ended(60)
    print(job.output)
    for found in job.bundle().verdicts:
        assert "network-lossy" == found.code
        assert 1 in found.nodes


# --- what only the smoke test sees: ranks of torch, in the steps of the job

SMOKE = {"nodes": 3, "resources": {"memory": "3Gi"}, "gate": {"smoke_test": True, "skip": ["mesh"]}}
SECONDS = 90
"""For torch to be imported on a busy machine, three times."""


@pytest.mark.whole
@pytest.mark.fault("memory-too-small")
def test_memory_that_does_not_hold_torch(cluster: Cluster, work: Path) -> None:
    """The kernel kills ranks that have not even imported it; with what the hint says they add up."""
    keys = {"nodes": 1, "nproc_per_node": 4, "gate": {"smoke_test": True, "skip": ["memory"]}}
    job = Job.submit(cluster, work, "", GATE_ONLY, **keys, resources={"memory": "350Mi"})

    print(job.ended(SECONDS), job.output)
    assert ("memory-too-small", [0]) == (job.verdict.code, job.verdict.nodes)
    assert "got SIGKILL while importing torch" in job.verdict.sentence

    job = Job.submit(cluster, work, "", GATE_ONLY, **keys, resources={"memory": "3Gi"})
    assert "COMPLETED" == job.ended(SECONDS), job.output


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_ports_between_two_nodes_are_closed(cluster: Cluster, work: Path) -> None:
    """Nothing but the smoke test looks at them; when the firewall lets them through, all ranks add up."""
    cluster.nft("n2", "ip saddr 10.99.0.13 tcp dport 32768-60999 drop")
    job = Job.submit(cluster, work, "", GATE_ONLY, **SMOKE)

    assert "FAILED" == job.ended(SECONDS), job.output
    assert ("port-filtered", [1]) == (job.verdict.code, job.verdict.nodes)
    assert "node 2 (n3) -> node 1 (n2): rank 2 cannot connect to 10.99.0.12" in job.verdict.sentence
    assert "open all TCP ports between the nodes" in job.verdict.hint

    cluster.run("n2", ["nft", "flush", "ruleset"])
    job = Job.submit(cluster, work, "", GATE_ONLY, **SMOKE)
    assert "COMPLETED" == job.ended(SECONDS), job.output
    assert "smoke test: gloo all_reduce of 3 ranks: 4 B to 16 MiB in " in job.output
