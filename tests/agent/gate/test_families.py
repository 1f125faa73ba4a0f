"""IPv4 and IPv6 in one job: names that lead by one alone, nodes that have no family in common."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from tests.agent.gate.clusters import MASTER_PORT, Cluster, MakeCluster
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.torches import TORCH

from ddplaunch.agent.contract import Exit

STORE = """
import datetime, sys, torch.distributed as dist
where = ("n0", 29500, None, sys.argv[1] == "server", datetime.timedelta(seconds=10))
store = dist.TCPStore(*where, wait_for_workers=False)
print("up", flush=True)
sys.stdin.readline()
"""
PIPES: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.DEVNULL,
    "text": True,
}
SIX = "fd00:77::{}"
REFUSED = "reject with icmpv6 admin-prohibited"


def six(host: Host, address: str) -> None:
    """A further address, of IPv6; usable at once."""
    run("ip", "-n", host.namespace, "addr", "add", f"{address}/64", "dev", "eth0", "nodad")


def both(trial: Cluster, port: int, answer: str) -> None:
    """Two hosts with both families, of which the second knows both of the first's; one lets nobody in."""
    for place, host in enumerate(trial.hosts):
        six(host, SIX.format(place + 1))
    lines = ["127.0.0.1 localhost", f"{SIX.format(1)} n0", "10.77.0.1 n0", "10.77.0.2 n1"]
    (trial.hosts[1].files / "hosts").write_text("\n".join(lines) + "\n")
    chain = "add table ip6 t; add chain ip6 t input { type filter hook input priority 0; }"
    rule = f"add rule ip6 t input tcp dport {port} {answer}"
    run("ip", "netns", "exec", trial.hosts[0].namespace, "nft", f"{chain}; {rule}")


@pytest.mark.fault("ip-family-mixed")
def test_an_ipv6_address_that_swallows_packets_is_a_verdict(cluster: MakeCluster) -> None:
    """torch would wait there for ever, though the gate itself comes through by the other address."""
    trial = cluster(2)
    both(trial, MASTER_PORT, "drop")

    assert ("ip-family-mixed", [1]) == trial.verdict()
    verdict = trial.job.verdict
    assert verdict.sentence.startswith(
        "node 1 (n1) resolves n0 to fd00:77::1, where packets to port 29500 vanish, and to 10.77.0.1, which"
    )
    assert "name node 0 by the address that answers, `rendezvous.address: 10.77.0.1`" in verdict.hint


def test_naming_the_address_that_answers_mends_it(cluster: MakeCluster) -> None:
    trial = cluster(2, master_addr="10.77.0.1")
    both(trial, MASTER_PORT, "drop")
    trial.starts()


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(("answer", "said"), [("drop", ""), (REFUSED, "up\n")])
def test_torch_waits_at_silence_and_passes_a_refusal(cluster: MakeCluster, answer: str, said: str) -> None:
    trial = cluster(2)
    both(trial, MASTER_PORT, answer)
    started: list[subprocess.Popen[str]] = []
    said_by: list[str] = []
    try:
        for host, what in zip(trial.hosts, ("server", "client")):  # which tries for ten seconds
            started.append(subprocess.Popen([*host.words, TORCH, "-c", STORE, what], **PIPES))
            assert started[-1].stdout is not None
            said_by.append(started[-1].stdout.readline())
        assert ["up\n", said] == said_by
    finally:
        for each in started:
            each.communicate("\n", timeout=60)


@pytest.mark.fault("ip-family-mixed")
def test_a_node_that_has_only_ipv6_says_so_itself(cluster: MakeCluster) -> None:
    trial = cluster(2, gate={"timeout": 6.0})
    namespace = trial.hosts[1].namespace
    run("ip", "-n", namespace, "addr", "flush", "dev", "eth0", "scope", "global")
    six(trial.hosts[1], SIX.format(2))
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 2 == [gate.wait() for gate in trial.gates.values()]
    said = trial.gates[1].output
    assert "ip-family-mixed: node 1 (n1) has no address of IPv4, and the hub is at 10.77.0.1:29400" in said
