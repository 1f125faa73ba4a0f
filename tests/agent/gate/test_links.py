"""Networks whose parts disagree on how large a packet may be: real interfaces, a real switch, real gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agent.gate.clusters import Cluster, Make
from tests.agent.gate.devices import add
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.jobs import Job

from ddplaunch.agent.contract import Exit


def believe(host: Host, mtu: int) -> None:
    """Only this end of the cable; a packet of more than its other end takes is dropped there."""
    # In one piece, as on a wire: between namespaces large ones would travel whole, whatever their size.
    run("ip", "-n", host.namespace, "link", "set", "eth0", "mtu", str(mtu), "gso_max_segs", "1")


@pytest.mark.fault("mtu-black-hole")
def test_jumbo_frames_on_two_nodes_and_not_on_the_switch(
    network: Make, job: Job, tmp_path: Path, agent: list[str]
) -> None:
    """The verdict says who believes what; when all believe the same, the job starts."""
    trial = Cluster(job, network(4))
    for host in trial.hosts[2:]:
        believe(host, 9000)
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 4 == trial.end()
    assert ("mtu-black-hole", [2, 3]) == trial.verdict()
    assert "the MTU is 9000 on nodes 2 (n2) and 3 (n3), 1500 on all other nodes" in job.verdict.facts
    assert "compare `ip link` on both nodes" in job.verdict.hint
    job.close()
    (tmp_path / "again").mkdir()
    again = Job(tmp_path / "again", agent)
    job.on_close.append(again.close)
    for host in trial.hosts:
        believe(host, 1500)
    trial = Cluster(again, trial.hosts)
    trial.start()
    assert [Exit.OK] * 4 == trial.end()


def renumber(host: Host, before: str, after: str) -> None:
    """Another address or prefix."""
    # One of the same subnet would be secondary to what was there, and go with it.
    run("ip", "-n", host.namespace, "address", "del", before, "dev", "eth0")
    run("ip", "-n", host.namespace, "address", "add", after, "dev", "eth0")


def nowhere(trial: Cluster) -> None:
    """Node 1's router answers to its name, and to nothing else."""
    add(trial.hosts[1], "eth1", "192.168.9.2/24")
    there = ["ip", "-n", trial.hosts[1].namespace]
    run(*there, "neigh", "add", "192.168.9.1", "lladdr", "02:00:00:00:00:01", "dev", "eth1")
    run(*there, "route", "add", "default", "via", "192.168.9.1")


def by_way_of_node_0(trial: Cluster) -> None:
    """Node 1's router works; what comes by another way node 1 drops, as Red Hat has it."""
    zero, one, two = (["ip", "-n", host.namespace] for host in trial.hosts)
    run(*zero, "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", one[2])
    run(*zero, "address", "add", "192.168.9.1/24", "dev", "eth1")
    run(*one, "address", "add", "192.168.9.2/24", "dev", "eth1")
    for there in (zero, one):
        run(*there, "link", "set", "eth1", "up")
    run(*one, "route", "add", "default", "via", "192.168.9.1")
    run(*two, "route", "add", "192.168.9.0/24", "via", trial.hosts[0].address)
    for there, setting in ((zero, "ip_forward"), (one, "conf/all/rp_filter")):
        run("ip", "netns", "exec", there[2], "sh", "-c", f"echo 1 > /proc/sys/net/ipv4/{setting}")


def with_small_prefix(network: Make, job: Job, router: Callable[[Cluster], None]) -> Cluster:
    """Node 1 believes that half of its network, where node 2 is, lies behind a router."""
    trial = Cluster(job, network(3), master_addr=None)
    renumber(trial.hosts[2], "10.77.0.3/24", "10.77.0.130/24")
    trial.hosts[2].address = "10.77.0.130"
    for host in trial.hosts:
        host.hosts({each.name: each.address for each in trial.hosts})
    renumber(trial.hosts[1], "10.77.0.2/24", "10.77.0.2/25")
    router(trial)
    trial.start()
    return trial


@pytest.mark.parametrize(
    ("router", "code"),
    [
        pytest.param(
            lambda trial: None, "host-unreachable", marks=pytest.mark.fault("host-unreachable"), id="none"
        ),
        pytest.param(nowhere, "port-filtered", marks=[pytest.mark.fault("port-filtered"), pytest.mark.whole]),
        pytest.param(
            by_way_of_node_0,
            "network-one-way",
            marks=[pytest.mark.fault("network-one-way"), pytest.mark.whole],
        ),
    ],
)
def test_a_prefix_that_is_too_long(
    network: Make, job: Job, router: Callable[[Cluster], None], code: str
) -> None:
    """Its packets find no way, or take a wrong one; the verdict says whose prefix it is, and what to type."""
    trial = with_small_prefix(network, job, router)

    assert [Exit.NODE_AT_FAULT] * 3 == trial.end()
    assert (code, [1]) == trial.verdict()
    said = job.verdict.sentence.rpartition("; ")[2]
    assert "the subnets overlap: node 1 (n1) 10.77.0.0/25, elsewhere /24" == said
    assert job.verdict.hint.startswith("on node 1 (n1): `ip address add 10.77.0.2/24 dev eth0 && ")
    run("ip", "netns", "exec", trial.hosts[1].namespace, "sh", "-c", job.verdict.hint.split("`")[1])
    trial.mended()


def test_a_prefix_that_is_too_short(network: Make, job: Job) -> None:
    """It does no harm before somebody is in the other part of it: a note."""
    trial = Cluster(job, network(3))
    renumber(trial.hosts[1], "10.77.0.2/24", "10.77.0.2/16")
    trial.start()

    assert [Exit.OK] * 3 == trial.end(), [gate.output for gate in trial.gates]
    assert "note: the subnets overlap: node 1 (n1) 10.77.0.0/16, elsewhere /24" in trial.gates[0].output


def test_jumbo_frames_on_one_node(network: Make, job: Job) -> None:
    """It agrees with every other on less: that is a note."""
    trial = Cluster(job, network(2))
    believe(trial.hosts[1], 9000)
    trial.start()

    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]
    assert "note: the MTU is 9000 on node 1 (n1), 1500 on all other nodes" in trial.gates[0].output
