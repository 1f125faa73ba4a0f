"""Whether names lead to node 0: what is a verdict, what only a note, and what is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshResult, Outcome
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView

NAMES = ["n1", "n2", "n3"]
PLAN = JobPlan("trial", 3, 1, ["{python}", "{master_addr}"], ["train.py"], names=NAMES)
TRUE = {"n1": ["10.0.0.1"], "n2": ["10.0.0.2"], "n3": ["10.0.0.3"]}


def check_in(node: int, master: str = "", **resolved: list[str]) -> CheckIn:
    """A node on a machine of its own, that knows all names as they are, but for `resolved`."""
    address = f"10.0.0.{node + 1}"
    facts: dict[str, Any] = {
        "own": NAMES[node],
        "master": master,
        "interfaces": [["lo", "127.0.0.1"], ["eth0", address]],
        "addresses": {name: found for name, found in {**TRUE, **resolved}.items() if found},
        "unresolved": {name: "no such name" for name, found in resolved.items() if not found},
    }
    if master:
        facts["addresses"].setdefault(master, [master])
    ports = {"responder": 40000}
    machine = f"machine {node}"
    return CheckIn(node, NAMES[node], 3, 1, address, ports, 0.0, machine, "net", node, {"names": facts})


def view(*odd: CheckIn, **changes: Any) -> GateView:
    """Three nodes, with `odd` in their places."""
    check_ins = {node: check_in(node) for node in range(3)}
    check_ins.update({each.node: each for each in odd})
    return GateView(PLAN, check_ins, **changes)


def to_master(node: int, address: str, outcome: Outcome, detail: str = "") -> MeshResult:
    """How a node's way to the master port went."""
    return MeshResult(node, 0, address, 29500, "master", outcome, detail)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "node 2 (n3) cannot resolve n1; it reaches node 0 at 10.0.0.1"),
        (
            ["127.0.1.1"],
            "node 2 (n3) resolves n1 to 127.0.1.1, which is itself; it reaches node 0 at 10.0.0.1",
        ),
        (
            ["10.0.0.9"],
            "node 2 (n3) resolves n1 to 10.0.0.9, which is not node 0; it reaches node 0 at 10.0.0.1",
        ),
        (["10.0.0.9", "10.0.0.1"], None),
    ],
)
def test_a_wrong_name_that_is_not_used_is_a_note(found: list[str], said: str | None) -> None:
    """Where the job goes by the address that the gate found, a wrong name breaks nothing."""
    odd = view(check_in(2, n1=found))

    assert [] == decide.judge(odd)
    assert ([said] if said else []) == decide.notes(odd)


def test_node_zero_may_know_itself_by_any_name() -> None:
    """Debian's 127.0.1.1 on node 0 itself leads to node 0."""
    odd = view(check_in(0, n1=["127.0.1.1"]))

    assert [] == decide.notes(odd)


@pytest.mark.parametrize(
    ("outcome", "detail", "tail"),
    [
        ("refused", "Connection refused", ": it is node 1 (n2)'s"),
        ("shared", "it is the TCPStore of another training job", ": it is node 1 (n2)'s"),
    ],
)
def test_a_master_that_is_another_node(outcome: Outcome, detail: str, tail: str) -> None:
    """The one node that is misled is named, whatever it met there, and its path is no second verdict."""
    misled = check_in(2, master="n1", n1=["10.0.0.2"])
    (verdict,) = decide.judge(view(misled, mesh=[to_master(2, "n1", outcome, detail)]))

    assert ("dns-disagrees", [2]) == (verdict.code, verdict.nodes)
    assert "nodes 0 (n1) and 1 (n2) resolve n1 to it" == verdict.facts[-1]
    assert verdict.sentence == (
        "node 2 (n3) would look for the master at n1 (10.0.0.2), which is not an address of "
        f"node 0 (n1, 10.0.0.1){tail}"
    )


def test_a_masters_name_that_leads_everybody_elsewhere() -> None:
    """Then nobody disagrees, and the name itself is wrong."""
    misled = [check_in(node, master="n1", n1=["10.0.0.2"]) for node in range(3)]
    mesh = [to_master(node, "n1", "refused", "Connection refused") for node in range(3)]
    (verdict,) = decide.judge(view(*misled, mesh=mesh))

    assert ("master-is-not-node-zero", [0, 1, 2]) == (verdict.code, verdict.nodes)


def test_a_master_that_is_nobody_of_this_job() -> None:
    """What answers there is told, when something does."""
    misled = [check_in(node, master="10.0.0.7") for node in range(3)]
    mesh = [to_master(node, "10.0.0.7", "stranger", "it is an SSH server") for node in range(3)]
    (verdict,) = decide.judge(view(*misled, mesh=mesh))

    assert ("master-is-not-node-zero", [0, 1, 2]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.endswith("(n1, 10.0.0.1): it is an SSH server")


def test_an_address_that_leads_to_node_zero_is_right_whatever_it_is() -> None:
    """Behind a NAT node 0 does not know its own address; it has proved itself there."""
    behind = [check_in(node, master="192.0.2.1") for node in range(3)]

    assert [] == decide.judge(view(*behind, mesh=[to_master(node, "192.0.2.1", "ok") for node in range(3)]))


def test_a_closed_way_to_node_zeros_own_address_is_a_firewalls() -> None:
    """The address is right, and the port is dropped."""
    named = [check_in(node, master="n1") for node in range(3)]
    (verdict,) = decide.judge(view(*named, mesh=[to_master(1, "n1", "timeout")]))

    assert ("port-filtered", [0, 1]) == (verdict.code, verdict.nodes)


def test_without_interfaces_nothing_is_said() -> None:
    """An agent that could not list node 0's addresses does not know whose an address is."""
    zero = check_in(0)
    zero.facts["names"]["interfaces"] = []
    misled = check_in(2, master="n1", n1=["10.0.0.2"])
    (verdict,) = decide.judge(view(zero, misled, mesh=[to_master(2, "n1", "refused")]))

    assert "port-rejected" == verdict.code


def test_a_skipped_check_judges_and_notes_nothing() -> None:
    """`gate.skip: [names]`."""
    skipping = replace(
        view(check_in(2, n1=["127.0.1.1"])), plan=replace(PLAN, gate=replace(PLAN.gate, skip=["names"]))
    )

    assert ([], []) == (decide.judge(skipping), decide.notes(skipping))
