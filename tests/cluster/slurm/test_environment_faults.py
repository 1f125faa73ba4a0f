"""Nodes of a Slurm job that were told different things, or meet what is not theirs: verdict, hint, start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import (
    ADDRESSES,
    BY_NAME,
    FIXED,
    GATE,
    GATE_ONLY,
    MASTER,
    Start,
    notes,
    verdict,
)
from tests.cluster.slurm.jobs import STEPS, Job

ON_N3 = """
[ "$SLURMD_NODENAME" = n3 ] || exit 0
printf 'export %s\\n' TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL_DEBUG=INFO
"""
SIX = {node: address.replace("10.99.0.", "fd00:99::") for node, address in ADDRESSES.items()}


@pytest.mark.whole
@pytest.mark.fault("environment-differs")
def test_a_setting_that_one_node_gives_its_tasks(start: Start, task_prolog: Callable[[str], None]) -> None:
    """Left behind by somebody who looked for something there. What the job file says stands above it."""
    task_prolog(ON_N3)

    code, nodes, found = verdict(start())
    assert ("environment-differs", [2]) == (code, nodes)
    assert found.sentence.startswith(
        "node 2 (n3) has TORCH_DISTRIBUTED_DEBUG=DETAIL, the others no TORCH_DIST"
    )
    assert "set it for all nodes, by `env` in the job file" in found.hint
    mended = start(GATE_ONLY, env={"TORCH_DISTRIBUTED_DEBUG": "OFF"})
    assert ["NCCL_DEBUG differs: node 2 (n3) INFO, elsewhere not set"] == notes(mended)


@pytest.fixture(name="ipv6")
def _ipv6(cluster: Cluster) -> Iterator[None]:
    """All nodes have it, beside the other; only n3 knows of n1's."""
    for node, address in SIX.items():
        cluster.run(node, ["ip", "addr", "add", f"{address}/64", "dev", "eth0", "nodad"])
    lines = [
        "127.0.0.1 localhost",
        f"{SIX['n1']} n1",
        *(f"{each} {node}" for node, each in ADDRESSES.items()),
    ]
    cluster.hosts("n3").write_text("\n".join(lines) + "\n")
    yield
    for node, address in SIX.items():
        cluster.run(node, ["ip", "addr", "del", f"{address}/64", "dev", "eth0"])


@pytest.mark.whole
@pytest.mark.fault("ip-family-mixed")
def test_an_ipv6_address_behind_a_firewall(cluster: Cluster, start: Start, ipv6: None) -> None:
    """Nobody thought of it. The other address of the name is the way out."""
    cluster.nft("n1", f"ip6 daddr {SIX['n1']} tcp dport {MASTER} drop")

    code, nodes, found = verdict(start(**BY_NAME))
    assert ("ip-family-mixed", [2]) == (code, nodes)
    assert found.sentence.startswith(
        f"node 2 (n3) resolves n1 to {SIX['n1']}, where packets to port {MASTER} vanish, and to 10.99.0.11"
    )
    (address,) = re.findall(r"`rendezvous.address: (\S+)`", found.hint)
    assert [] == notes(start(GATE_ONLY, rendezvous={"port": MASTER, "address": address}))


@pytest.mark.whole
@pytest.mark.fault("store-shared")
def test_two_jobs_that_were_given_one_port(cluster: Cluster, start: Start, work: Path) -> None:
    """On the same nodes, and one trains already: by its hub's port, and by its store's. Then by neither."""
    first = Job.submit(cluster, work, STEPS, name="first", command=["program.py", "600"], **FIXED)
    first.up()

    code, nodes, found = verdict(start("--nodelist=n1,n2,n3"))
    assert ("store-shared", [0]) == (code, nodes)
    assert f"port {GATE} is held by pid " in found.sentence
    assert "it is of ddplaunch, of another job or attempt" in found.sentence

    own_gate = {"gate": {"port": GATE + 1, "timeout": "120s"}}
    code, nodes, found = verdict(start("--nodelist=n1,n2,n3", **own_gate))
    assert ("store-shared", [0]) == (code, nodes)
    assert f"port {MASTER} is held by pid " in found.sentence
    assert "ddplaunch job first): it is the TCPStore of another training job" in found.sentence
    assert "leave it out: then each job finds its own" in found.hint

    assert [] == notes(start(GATE_ONLY, "--nodelist=n1,n2,n3", rendezvous={}, gate={"timeout": "120s"}))
    cluster.login(["scancel", str(first.number)])
    assert "CANCELLED" == first.ended()
