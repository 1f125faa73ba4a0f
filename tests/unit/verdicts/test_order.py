"""Several causes at once, whichever they are: each is told once, in one order, and what they hide is said."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.contract import CheckIn, CheckResult, Exit, JobPlan, MeshResult, Outcome, Status, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView

NODES = 9
PLAN = JobPlan("trial", NODES, 2, ["--rdzv-backend=c10d"], ["train.py"], master_addr="n0")
VERSIONS = {"python": "3.11.7", "torch": "2.15.0"}
Fault = Callable[[GateView], GateView]


def check_in(node: int) -> CheckIn:
    """A healthy node on a machine of its own."""
    return CheckIn(
        node,
        f"n{node}",
        NODES,
        2,
        f"10.0.0.{node}",
        {"responder": 40000},
        1000.0,
        machine=f"machine {node}",
        pid=10 + node,
        facts={
            "names": {"own": f"n{node}", "addresses": {"n0": ["10.0.0.0"]}},
            "versions": VERSIONS,
            "hub": {"received": 1000.0, "round_trip": 0.1},
        },
    )


def healthy() -> GateView:
    """All are here, and reach one another."""
    passed = {
        str(node): {**{str(peer): 1 for peer in range(NODES) if peer != node}, "master": 1}
        for node in range(NODES)
    }
    return GateView(PLAN, {node: check_in(node) for node in range(NODES)}, 120.0, passed=passed)


def changed(node: int, **changes: Any) -> Fault:
    """Something is other than it should be on this node; `facts` are added."""

    def fault(view: GateView) -> GateView:
        here = view.check_ins[node]
        facts = {**here.facts, **changes.get("facts", {})}
        checks = [*here.checks, *changes.get("checks", [])]
        new = replace(here, **{**changes, "facts": facts, "checks": checks})
        return replace(view, check_ins={**view.check_ins, node: new})

    return fault


def failed(node: int, code: str, **facts: Any) -> Fault:
    """It found this at home."""
    return changed(node, checks=[CheckResult(code, Status.FAIL, code, "", "", code)], facts=facts)


def gone(node: int, **changes: Any) -> Fault:
    """It is not here, and nobody reached it."""

    def fault(view: GateView) -> GateView:
        here = {n: c for n, c in view.check_ins.items() if n != node}
        return replace(view, check_ins=here, **changes)

    return fault


def closed(one: int, other: int, outcome: Outcome) -> Fault:
    """These two do not reach each other."""

    def fault(view: GateView) -> GateView:
        passed = {node: dict(peers) for node, peers in view.passed.items()}
        bad = []
        for node, peer in ((one, other), (other, one)):
            passed[str(node)].pop(str(peer))
            bad.append(MeshResult(node, peer, f"10.0.0.{peer}", 40000, "responder", outcome))
        return replace(view, passed=passed, mesh=[*view.mesh, *bad])

    return fault


def stray(view: GateView) -> GateView:
    """Another process says that it is node 1."""
    return replace(view, strays=[replace(check_in(1), host="other", pid=99)])


LOOPBACK = {"own": "n4", "addresses": {"n0": ["127.0.1.1"]}}
UNKNOWN = {"own": "n6", "addresses": {}, "unresolved": {"n0": "no such name"}}
CRY = Verdict.of("port-filtered", "node 5 -> the hub: no answer", "gate", nodes=[5])
FAULTS: dict[tuple[str, tuple[int, ...]], Fault] = {
    ("rank-duplicate", (1,)): stray,
    ("world-size-differs", (2,)): changed(2, nodes=12),
    ("master-is-loopback", (4,)): changed(4, facts={"names": LOOPBACK}),
    ("version-differs", (3,)): changed(3, facts={"versions": {**VERSIONS, "torch": "2.13.0"}}),
    ("image-lacks", (8,)): failed(8, "image-lacks", versions={}),
    ("shm-too-small", (1,)): failed(1, "shm-too-small"),
    ("dns-not-found", (6,)): failed(6, "dns-not-found", names=UNKNOWN),
    ("port-filtered", (5,)): gone(5, unreached={5: CRY}),
    ("clock-skew", (3,)): changed(3, at=1061.0),
    ("disk-full", (2,)): failed(2, "disk-full"),
    ("port-in-use", (0,)): failed(0, "port-in-use"),
    ("mtu-black-hole", (3, 4)): closed(3, 4, "stalled"),
    ("port-filtered", (1, 2)): closed(1, 2, "timeout"),
}
"""In the order in which they are to be mended. By code and node."""


def caused(faults: list[tuple[str, tuple[int, ...]]]) -> GateView:
    view = healthy()
    for fault in faults:
        view = FAULTS[fault](view)
    return view


def told(view: GateView) -> list[tuple[str, tuple[int, ...]]]:
    """What is told, by code and node."""
    return [(verdict.code, tuple(verdict.nodes)) for verdict in decide.judge(view)]


def test_nothing_is_told_of_healthy_nodes() -> None:
    """Else the faults below would not be what is found."""
    assert [] == decide.judge(healthy())


@given(st.sets(st.sampled_from(sorted(FAULTS))), st.randoms(use_true_random=False))
def test_any_faults_at_once(faults: set[tuple[str, tuple[int, ...]]], shuffled: random.Random) -> None:
    """Each is told once, in the order of mending, and the job's exit code is the first one's."""
    view = caused(sorted(faults))
    rules = list(decide.RULES)
    shuffled.shuffle(rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decide, "RULES", tuple(rules))
        found = told(view)

    assert [fault for fault in FAULTS if fault in faults] == found
    codes = {CATALOGUE[code].exit_code for code, _ in found}
    if found:
        first = CATALOGUE[found[0][0]].exit_code
        assert first == (Exit.MISCONFIGURED if Exit.MISCONFIGURED in codes else Exit.NODE_AT_FAULT)


def test_what_a_missing_node_hides() -> None:
    """What it would find and how it is reached cannot be known; the verdict that ends the wait says so."""
    view = caused([("port-filtered", (5,)), ("shm-too-small", (1,))])
    shm, unreached = decide.judge(replace(view, passed={}))

    assert [] == shm.facts
    hidden = "not checked until node 5 is here: its own checks, and the paths between the nodes"
    assert [hidden] == unreached.facts


def test_what_is_told_before_all_are_here() -> None:
    """A failure that nobody's arrival cures is told at once, and says what was not looked at."""
    (shm,) = decide.judge(gone(7)(gone(8)(caused([("shm-too-small", (1,))]))))

    hidden = "not checked until nodes 7 and 8 are here: their own checks, and the paths between the nodes"
    assert [hidden] == shm.facts


def master(node: int, outcome: Outcome) -> Fault:
    """How this node found the master's port, by its name."""
    result = MeshResult(node, 0, "n0", 29500, "master", outcome)

    def fault(view: GateView) -> GateView:
        passed = {
            n: {p: s for p, s in peers.items() if (n, p) != (str(node), "master")}
            for n, peers in view.passed.items()
        }
        return replace(view, passed=passed, mesh=[*view.mesh, result])

    return fault


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(("master-is-loopback", (4,)), "refused"), (("dns-not-found", (6,)), "unreachable")],
)
def test_a_name_that_leads_nowhere_leads_to_no_port(
    fault: tuple[str, tuple[int, ...]], outcome: Outcome
) -> None:
    """That the master is not found by it is no second cause; what others find of its port is one."""
    alone = master(fault[1][0], outcome)(caused([fault]))
    both = master(2, "timeout")(alone)

    assert [fault] == told(alone)
    assert [fault, ("port-filtered", (0,))] == sorted(told(both), key=lambda each: each != fault)
    hiding = next(verdict for verdict in decide.judge(both) if verdict.code == fault[0])
    assert hiding.facts[-1] == (
        f"not checked until the name leads there: whether node {fault[1][0]} can reach the master"
    )


def test_a_node_that_is_gone_is_reached_by_nobody() -> None:
    """That others find none of its ports is no second cause."""
    away = gone(5, missing=[5], vanished=[5])(closed(1, 5, "refused")(healthy()))

    assert [("node-missing", (5,))] == told(away)


def test_who_took_another_nodes_place_is_not_missing_as_well() -> None:
    """Two claim to be node 1: that there is no node 8 is because of it. Two missing ones are not."""
    one = gone(8, missing=[8])(stray(healthy()))
    two = gone(7, missing=[7, 8])(one)

    assert [("rank-duplicate", (1,))] == told(one)
    assert [("rank-duplicate", (1,)), ("node-missing", (7, 8))] == told(two)


def test_a_smaller_job_has_no_more_nodes() -> None:
    """Node 8 never came because its fellows were told of eight nodes. Node 3 may not be absent for that."""
    small = caused([])
    for node in (1, 2):
        small = changed(node, nodes=8)(small)

    assert [("world-size-differs", (1, 2))] == told(gone(8, missing=[8])(small))
    assert "node-missing" in dict(told(gone(3, missing=[3])(small)))


def test_a_node_without_torch_has_no_other_version_of_it() -> None:
    """Its interpreter lacks torch, so that its versions differ."""
    lacks = failed(8, "image-lacks", versions={"python": "3.11.7"})(healthy())

    assert [("image-lacks", (8,))] == told(lacks)
    assert ["image-lacks", "version-differs"] == sorted(
        code for code, _ in told(FAULTS[("version-differs", (3,))](lacks))
    )
