"""Real faults between the pods of a job, before it starts: the verdict, the node, and that its hint helps."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import (
    CLEAR,
    GATE,
    MASTER,
    Start,
    comes,
    containers,
    first_told,
    gate,
    passes,
    placed,
    told,
)
from tests.cluster.kubernetes.jobs import Documents, unplaced

BETWEEN_PODS = "ip saddr 10.244.0.0/16 ip daddr 10.244.0.0/16 "
"""Not to the API server: CoreDNS, too, is a pod that would lose its."""
SERVE_HTTP = [
    "python3",
    "-c",
    f"from http.server import *; HTTPServer(('', {GATE}), SimpleHTTPRequestHandler).serve_forever()",
]


@pytest.mark.whole
@pytest.mark.fault("port-filtered")
def test_packets_between_pods_are_dropped(faults: Faults, start: Start) -> None:
    """As by a NetworkPolicy that denies all: node 1 has node 0's address, and gets no answer."""
    faults.nft(faults.cluster.workers[0], BETWEEN_PODS + "meta l4proto tcp drop")
    job = start(gate=gate(timeout="90s"))  # of which a new pod's network is given 35 s

    code, nodes, found = told(job, 1)
    assert ("port-filtered", [1]) == (code, nodes)
    assert "node 1 (job-1) -> the hub at job-0.job." in found.sentence
    assert "NetworkPolicy" in found.hint

    faults.clear()
    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("port-refused")
def test_a_hub_that_does_not_come_up(start: Start) -> None:
    """Its container runs and nobody listens there. All nodes wait for it, and say so when waiting is over."""

    def stuck(documents: Documents) -> None:
        containers(documents)["hub"]["command"] = ["sh", "-c", "trap exit TERM; sleep 600 & wait"]

    job = start(stuck, gate=gate(timeout="8s"))

    verdicts = first_told(job)
    assert {("port-refused", (0,))} == {(found.code, tuple(found.nodes)) for found in verdicts}
    for found in verdicts:
        assert " -> the hub at job-0.job." in found.sentence
        assert found.sentence.endswith("the host answers, nobody listens")
        assert "`kubectl logs` of node 0's pod, container hub: did it start?" in found.hint
    assert "" == job.log(0, "hub")

    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("port-rejected")
def test_the_master_port_is_refused(faults: Faults, start: Start) -> None:
    """Node 0 listens there itself, so it is a firewall that answers."""
    for machine in faults.cluster.workers:
        faults.nft(machine, f"tcp dport {MASTER} reject with tcp reset")
    job = start()

    code, nodes, found = told(job, 0)
    assert ("port-rejected", [0]) == (code, nodes)
    assert "port 29500 is refused although node 0 (job-0) listens there" in unplaced(found)
    assert "look for a REJECT rule on the way" in found.hint
    assert "reject" in faults.run(faults.cluster.workers[0], "nft", "list", "ruleset")

    faults.clear()
    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("network-one-way")
def test_connections_in_one_direction_only(faults: Faults, start: Start) -> None:
    """The pod of node 1 makes connections and takes none."""
    job = placed(faults, start)
    syn = "tcp flags & (syn | ack) == syn"
    faults.nft(faults.cluster.workers[1], f'iifname "eth0" {syn} drop')
    comes(job)

    code, nodes, found = told(job, 0)
    assert ("network-one-way", [0, 1]) == (code, nodes)  # of two nodes, either may be at fault
    here, there = faults.cluster.workers
    sentence = f"node 0 (job-0 on {here}) cannot open connections to node 1 (job-1 on {there}, "
    assert sentence in found.sentence
    assert sentence.partition(" to ")[0] in job.log(0, "hub")  # as kubectl shows it
    assert "lets connections out and not in" in found.hint

    faults.clear()
    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("mtu-black-hole")
def test_large_packets_vanish(faults: Faults, start: Start) -> None:
    """Between the two machines, as by a tunnel with an MTU too large."""
    for machine in faults.cluster.workers:
        faults.nft(machine, BETWEEN_PODS + "meta length gt 1000 drop")
    job = start()

    code, nodes, found = told(job, 0)
    assert "mtu-black-hole" == code
    assert 1 in nodes
    assert "MTU" in found.hint
    assert "PodFailurePolicy" == job.ended()

    faults.clear()
    passes(start(**CLEAR))


@pytest.mark.whole
@pytest.mark.fault("stranger-listens")
def test_a_stranger_has_the_port(start: Start) -> None:
    """A program of the image answers in HTTP where the hub of node 0 should."""

    def instead(documents: Documents) -> None:
        containers(documents)["hub"]["command"] = SERVE_HTTP

    job = start(instead)

    code, nodes, found = told(job, 1)
    assert ("stranger-listens", [0]) == (code, nodes)
    assert "HTTP" in found.sentence
    assert "another container of the pod, has the port: keep it away" in found.hint

    passes(start(**CLEAR))
