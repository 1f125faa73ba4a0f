"""Networks whose parts disagree on how large a packet may be: real interfaces, a real switch, real gates."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.agent.gate.clusters import MakeCluster
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.long_way import long_way

from ddplaunch.agent.contract import MeshTask
from ddplaunch.agent.gate import probe
from ddplaunch.agent.gate.probe import Responder
from ddplaunch.agent.system import ports
from ddplaunch.report import gate_results


def believe(host: Host, mtu: int) -> None:
    """Only this end of the cable; a packet of more than its other end takes is dropped there."""
    # In one piece, as on a wire: between namespaces large ones would travel whole, whatever their size.
    run("ip", "-n", host.namespace, "link", "set", "eth0", "mtu", str(mtu), "gso_max_segs", "1")


@pytest.mark.fault("mtu-black-hole")
def test_jumbo_frames_that_the_switch_drops_are_told_with_who_believes_what(cluster: MakeCluster) -> None:
    trial = cluster(4)
    for host in trial.hosts[2:]:
        believe(host, 9000)

    assert ("mtu-black-hole", [2, 3]) == trial.verdict()
    assert "the MTU is 9000 on nodes 2 (n2) and 3 (n3), 1500 on all other nodes" in trial.job.verdict.facts
    assert "compare `ip link` on both nodes" in trial.job.verdict.hint
    for host in trial.hosts:
        believe(host, 1500)
    trial.mended()


def renumber(host: Host, before: str, after: str) -> None:
    """Another address or prefix."""
    # One of the same subnet would be secondary to what was there, and go with it.
    run("ip", "-n", host.namespace, "address", "del", before, "dev", "eth0")
    run("ip", "-n", host.namespace, "address", "add", after, "dev", "eth0")


@pytest.mark.fault("host-unreachable")
def test_a_prefix_that_is_too_long_is_told_with_what_mends_it(cluster: MakeCluster) -> None:
    """Node 1 believes that half of its network, where node 2 is, lies behind a router, and there is none."""
    trial = cluster(3, master_addr=None)
    renumber(trial.hosts[2], "10.77.0.3/24", "10.77.0.130/24")
    trial.hosts[2].address = "10.77.0.130"
    for host in trial.hosts:
        host.hosts({each.name: each.address for each in trial.hosts})
    renumber(trial.hosts[1], "10.77.0.2/24", "10.77.0.2/25")

    assert ("host-unreachable", [1]) == trial.verdict()
    said = trial.job.verdict.sentence.rpartition("; ")[2]
    assert "the subnets overlap: node 1 (n1) 10.77.0.0/25, elsewhere /24" == said
    assert trial.job.verdict.hint.startswith("on node 1 (n1): `ip address add 10.77.0.2/24 dev eth0 && ")
    run("ip", "netns", "exec", trial.hosts[1].namespace, "sh", "-c", trial.job.verdict.hint.split("`")[1])
    trial.mended()


DELAY = 0.03


def test_a_long_way_and_a_small_mtu_are_seen(cluster: MakeCluster) -> None:
    trial = cluster(3)
    with long_way(trial.hosts[0], trial.hosts[2], DELAY, 1300):
        trial.starts()

    found = {(each.node, each.peer): each for each in gate_results.links(trial.job.bundle)}
    far = {(0, 2), (2, 0)}
    assert {(a, b) for a in range(3) for b in range(3) if a != b} == found.keys()
    assert far == {way for way, each in found.items() if each.mtu == 1300}
    assert far == {way for way, each in found.items() if each.rtt is not None and each.rtt >= 2 * DELAY}
    assert {1500} == {each.mtu for way, each in found.items() if way not in far}


@pytest.mark.parametrize("size", [0, 64, 148])
def test_a_kernel_that_tells_less_leaves_both_open(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """As before Linux 4.6, and in sandboxes: the path passes all the same."""
    responder, listener = Responder(b"key", 0), ports.listen("127.0.0.1", 0)
    responder.listen(listener)
    number = ports.number(listener)
    whole = socket.socket.getsockopt

    class Sparing(socket.socket):
        def getsockopt(self, *words: Any) -> Any:
            found: Any = whole(self, *words)
            return found[:size] if isinstance(found, bytes) else found

    monkeypatch.setattr(socket, "socket", Sparing)
    (result,) = probe.run(1, [MeshTask(0, "127.0.0.1", number, "responder")], b"key", 0)
    responder.close(listener)

    assert ("ok", None) == (result.outcome, result.rtt)
    assert (result.mtu is None) == (size < 64)
