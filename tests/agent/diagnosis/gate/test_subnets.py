"""Addresses and prefixes of several nodes: what a router may join, and what is a mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.gate.check_ins import PLAN, check_in, only

from ddplaunch.agent.contract import MeshResult, Outcome
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView


def view(*networks: str, closed: tuple[tuple[int, int], ...] = (), outcome: Outcome = "timeout") -> GateView:
    """Nodes with these addresses and prefixes, and paths that are closed."""
    check_ins = {}
    for node, each in enumerate(networks):
        address, _, prefix = each.partition("/")
        facts: dict[str, Any] = {
            "names": {"interfaces": [["lo", "127.0.0.1"], ["ens5", address]]},
            "interfaces": {"prefixes": {address: int(prefix)} if prefix else {}},
        }
        check_ins[node] = check_in(node, address=address, facts=facts)
    addresses = [each.partition("/")[0] for each in networks]
    mesh = [MeshResult(a, b, addresses[b], 4000 + b, "responder", outcome, seconds=4.0) for a, b in closed]
    return GateView(PLAN, check_ins, mesh=mesh)


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        (("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"), []),
        (("10.0.0.1/24", "10.0.1.2/24", "10.0.4.3/23"), []),  # racks, joined by routers
        (("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"), []),  # as clouds and pods have it
        (("10.0.0.1", "10.0.0.2/16", "10.0.0.3/16"), []),  # behind a translation, or not told
        (("10.0.0.1/24", "10.0.0.2/16", "10.0.0.3/24"), ["node 1 10.0.0.0/16, elsewhere /24"]),
        (("10.0.0.1/24", "10.0.9.2/24", "10.0.0.3/16"), ["node 2 10.0.0.0/16, elsewhere /24"]),
        (("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/32"), ["node 2 10.0.0.3/32, elsewhere /24"]),
        (("fd00::1/64", "fd00::2/64", "fd00::3/128"), []),  # by DHCP, and the router says the rest
        (("fd00::1/64", "fd00::2/56", "fd00::3/64"), ["node 1 fd00::/56, elsewhere /64"]),
        (("10.0.0.1/24", "fd00::2/56", "fd00::3/64"), ["node 2 fd00::/64, elsewhere /56"]),
    ],
)
def test_subnets_that_overlap(networks: tuple[str, ...], said: list[str]) -> None:
    """One in another, of another size: worth a note, whatever works."""
    assert [f"the subnets overlap: {each}" for each in said] == decide.notes(view(*networks))
    assert [] == decide.judge(view(*networks))


def test_a_prefix_that_explains_a_closed_path() -> None:
    """Node 1 looks for node 2 behind a router; the others look for it on the wire."""
    closed = ((1, 2), (2, 1))
    facts = view("10.0.0.1/24", "10.0.0.2/25", "10.0.0.130/24", closed=closed)
    verdict = only(decide.judge(facts))

    assert ("port-filtered", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.endswith("; the subnets overlap: node 1 10.0.0.0/25, elsewhere /24")
    change = "ip address add 10.0.0.2/24 dev ens5 && ip address del 10.0.0.2/25 dev ens5"
    assert verdict.hint.startswith(f"on node 1: `{change}`")


def test_a_prefix_that_closes_one_direction() -> None:
    """A host drops what comes on another interface than it would answer by: node 1, whose router works."""
    facts = view("10.0.0.1/24", "10.0.0.2/25", "10.0.0.130/24", closed=((2, 1),))
    everybody = {str(node): {str(peer): 1 for peer in range(3) if peer != node} for node in range(3)}
    del everybody["2"]["1"]
    verdict = only(decide.judge(replace(facts, passed=everybody)))

    assert ("network-one-way", [1]) == (verdict.code, verdict.nodes)
    assert "the reverse works" in verdict.sentence
    assert verdict.sentence.endswith("; the subnets overlap: node 1 10.0.0.0/25, elsewhere /24")
    assert verdict.hint.startswith("on node 1: `ip address add 10.0.0.2/24 dev ens5 && ")


def test_a_prefix_that_explains_nothing() -> None:
    """Both of the closed path have each other on the wire: it is told apart, and stays a note."""
    facts = view("10.0.0.1/24", "10.0.0.2/25", "10.0.0.3/24", closed=((0, 2), (2, 0)))
    verdict = only(decide.judge(facts))

    assert "subnet" not in verdict.sentence + verdict.hint + "".join(verdict.facts)
    assert 1 == len(decide.notes(facts))


def test_a_router_between_two_that_do_not_reach_each_other() -> None:
    """The facts say in which networks they are; where all are in one nothing is added."""
    routed = only(decide.judge(view("10.0.0.1/24", "10.0.1.2/24", "10.0.0.3/24", closed=((0, 1),))))
    alike = only(decide.judge(view("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", closed=((0, 1),))))

    said = "a router has to join them: node 0 in 10.0.0.0/24, node 1 in 10.0.1.0/24"
    assert (said, False) == (routed.facts[-1], any("router" in fact for fact in alike.facts))
