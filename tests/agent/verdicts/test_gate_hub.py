"""What a node says that cannot reach the hub: the one verdict it gives alone."""

from __future__ import annotations

import pytest

from ddplaunch.agent.addresses import Address
from ddplaunch.agent.verdicts.catalogue import CATALOGUE
from ddplaunch.agent.verdicts.gate_hub import unreached


@pytest.mark.parametrize(
    ("kind", "code", "nodes"),
    [
        ("not-found", "dns-not-found", [1]),
        ("unanswered", "dns-unanswered", [1]),
        ("refused", "port-refused", [0]),
        ("timeout", "port-filtered", [1]),
        ("unreachable", "host-unreachable", [1]),
        ("family", "ip-family-mixed", [1]),
        ("reset", "stranger-listens", [0]),
        ("stranger", "stranger-listens", [0]),
        ("shared", "store-shared", [0]),
        ("gone", "node-missing", [0]),
    ],
)
def test_every_way_to_fail(kind: str, code: str, nodes: list[int]) -> None:
    """Each kind of failure has its code, its culprit and a hint."""
    verdict = unreached(1, Address("n0", 29400), ["10.0.0.5"], kind, "detail", 12.0)

    assert (code, nodes) == (verdict.code, verdict.nodes)
    assert verdict.code in CATALOGUE
    assert verdict.hint


def test_a_hub_on_loopback_is_a_wrong_name() -> None:
    """A node other than 0 that is sent to itself has a wrong hosts file, not a closed port."""
    verdict = unreached(1, Address("n0", 29400), ["127.0.1.1"], "refused", "Connection refused", 4.0)

    assert verdict.code == "master-is-loopback"
    assert verdict.sentence == "node 1 resolves n0 to 127.0.1.1, which is node 1 itself"


def test_node_zero_on_loopback_has_no_hub() -> None:
    """On node 0 itself loopback is right, and a refusal means that the hub is not up."""
    assert unreached(0, Address("n0", 29400), ["127.0.0.1"], "refused", "", 9.0).code == "port-refused"
