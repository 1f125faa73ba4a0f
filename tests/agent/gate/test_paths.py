"""What the kernel tells of each path that passes: its round trip, and how large a packet may be."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.agent.gate.clusters import Cluster, Make
from tests.agent.gate.jobs import Job
from tests.agent.gate.long_way import long_way

from ddplaunch.agent.contract import Exit, MeshTask
from ddplaunch.agent.gate import probe
from ddplaunch.agent.gate.probe import Responder
from ddplaunch.agent.system import ports
from ddplaunch.report import gate_results

DELAY = 0.03


def test_a_long_way_and_a_small_mtu_are_seen(network: Make, job: Job) -> None:
    """Between these two nodes in both directions, and between no others."""
    trial = Cluster(job, network(3))
    with long_way(trial.hosts[0], trial.hosts[2], DELAY, 1300):
        trial.start()
        assert [Exit.OK] * 3 == trial.end(), [gate.output for gate in trial.gates]

    found = {(each.node, each.peer): each for each in gate_results.links(job.bundle)}
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
