"""Rules over failed paths: which fault they show, and which end is named."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.gate.check_ins import PLAN, check_in, only

from ddplaunch.agent.contract import MeshResult, Outcome
from ddplaunch.agent.diagnosis.gate import decide, failed_paths
from ddplaunch.agent.diagnosis.gate.view import GateView

Path = tuple[int, int, str]


def mesh(nodes: int, bad: dict[Path, Outcome]) -> list[MeshResult]:
    """All paths of a small job: everybody's responder and node 0's master port, good but for `bad`."""
    paths = [(a, b, "responder") for a, b in itertools.permutations(range(nodes), 2)]
    paths += [(a, 0, "master") for a in range(nodes)]
    return [
        MeshResult(
            a, b, f"10.0.0.{b}", 29500 if what == "master" else 40000 + b, what, bad.get((a, b, what), "ok")
        )
        for a, b, what in paths
    ]


def everything_to(node: int, nodes: int, outcome: Outcome) -> dict[Path, Outcome]:
    """All paths from others to one node."""
    return {(r.node, r.peer, r.what): outcome for r in mesh(nodes, {}) if r.peer == node and r.node != node}


def everything_from(node: int, nodes: int, outcome: Outcome) -> dict[Path, Outcome]:
    """All paths from one node to others."""
    return {(r.node, r.peer, r.what): outcome for r in mesh(nodes, {}) if r.node == node and r.peer != node}


def between(a: int, b: int, outcome: Outcome) -> dict[Path, Outcome]:
    """Both directions."""
    return {(a, b, "responder"): outcome, (b, a, "responder"): outcome}


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ({}, []),
        ({(1, 0, "master"): "refused"}, [("port-rejected", [0])]),
        ({(1, 0, "master"): "timeout"}, [("port-filtered", [0])]),
        ({(1, 0, "master"): "stranger"}, [("stranger-listens", [0])]),
        ({(1, 0, "master"): "shared"}, [("store-shared", [0])]),
        ({(1, 0, "master"): "reset"}, [("stranger-listens", [0])]),
        ({(n, 0, "master"): "timeout" for n in range(4)}, [("port-filtered", [0])]),
        ({(0, 0, "master"): "timeout"}, [("port-filtered", [0])]),
        (between(1, 2, "timeout"), [("port-filtered", [1, 2])]),
        ({(1, 2, "responder"): "timeout"}, [("network-one-way", [1, 2])]),
        (everything_to(3, 4, "timeout"), [("network-one-way", [3])]),
        (everything_from(3, 4, "timeout"), [("network-one-way", [3])]),
        (everything_to(0, 4, "timeout"), [("network-one-way", [0])]),
        ({(1, 2, "responder"): "unreachable"}, [("port-rejected", [2])]),
        ({(1, 0, "master"): "unreachable"}, [("port-rejected", [0])]),
        (between(1, 2, "unreachable"), [("host-unreachable", [1, 2])]),
        ({(1, 2, "responder"): "lossy"}, [("network-lossy", [1, 2])]),
        (
            {**everything_to(3, 4, "lossy"), (0, 3, "responder"): "timeout", (1, 0, "master"): "timeout"},
            [("network-lossy", [3]), ("port-filtered", [0])],
        ),
        ({**everything_to(3, 4, "lossy"), (3, 1, "responder"): "lossy"}, [("network-lossy", [3])]),
        (
            {(1, 2, "responder"): "unreachable", (2, 1, "responder"): "timeout"},
            [("host-unreachable", [1, 2])],
        ),
        (between(1, 2, "stalled"), [("mtu-black-hole", [1, 2])]),
        (everything_from(2, 4, "stalled"), [("mtu-black-hole", [2])]),
        (
            {**everything_to(3, 4, "timeout"), (1, 2, "responder"): "stalled"},
            [("network-one-way", [3]), ("mtu-black-hole", [1, 2])],
        ),
    ],
)
def test_culprits(bad: dict[Path, Outcome], expected: list[tuple[str, list[int]]]) -> None:
    """One fault is one verdict, on the node that its failed paths share."""
    found = [(verdict.code, verdict.nodes) for verdict in failed_paths.judge(mesh(4, bad))]

    assert expected == found


def test_a_dropped_port_is_told_with_one_that_answers() -> None:
    """The sentence names the port that is closed and one that is open."""
    (verdict,) = failed_paths.judge(mesh(2, {(1, 0, "master"): "timeout"}))

    assert verdict.sentence == (
        "node 1 -> node 0 (10.0.0.0) port 29500: no answer in 0 s while port 40000 answers: "
        "a firewall drops this port"
    )


def test_many_broken_paths_are_counted_not_listed() -> None:
    """A firewall in front of one node of many breaks many paths; a person reads a few of them."""
    (verdict,) = failed_paths.judge(mesh(32, everything_to(7, 32, "timeout")))

    assert verdict.nodes == [7]
    assert verdict.sentence == (
        "the other nodes cannot open connections to node 7 (10.0.0.7): no answer in 0 s; the reverse works "
        "(31 paths)"
    )
    assert len(verdict.facts) == 9
    assert verdict.facts[-1] == "23 more paths likewise"


def test_a_node_cut_in_both_directions_among_many() -> None:
    """When one node's every path is dead it alone is named, though each path has two ends."""
    dead = {**everything_to(5, 8, "timeout"), **everything_from(5, 8, "timeout")}

    (verdict,) = failed_paths.judge(mesh(8, dead))

    assert (verdict.code, verdict.nodes) == ("port-filtered", [5])
    assert verdict.sentence == (
        "node 5 is cut off from the other nodes on any port: no answer in 0 s (14 paths)"
    )


def group(sources: range, targets: range, outcome: Outcome) -> dict[Path, Outcome]:
    """All paths from those to these, the master port among them."""
    return {
        (r.node, r.peer, r.what): outcome for r in mesh(32, {}) if r.node in sources and r.peer in targets
    }


def test_a_group_that_does_not_reach_another_is_named_as_that() -> None:
    """Both sides stand in the sentence; at fault is the smaller one."""
    (verdict,) = failed_paths.judge(mesh(32, group(range(20, 32), range(20), "timeout")), nodes=32)

    assert (verdict.code, verdict.nodes) == ("network-one-way", list(range(20, 32)))
    assert verdict.sentence == (
        "nodes 20-31 cannot reach the other nodes on any port: no answer in 0 s; the reverse works "
        "(240 paths)"
    )


def test_two_racks_that_are_parted_are_both_named() -> None:
    """Neither is more to blame than the other."""
    parted = {
        **group(range(8, 16), range(16, 24), "timeout"),
        **group(range(16, 24), range(8, 16), "timeout"),
    }

    (verdict,) = failed_paths.judge(mesh(32, parted))

    assert (verdict.code, verdict.nodes) == ("port-filtered", list(range(8, 24)))
    assert verdict.sentence == (
        "nodes 8-15 and nodes 16-23 cannot reach one another on any port: no answer in 0 s (128 paths)"
    )


def test_one_port_that_is_closed_to_many_is_told_with_one_that_answers() -> None:
    """Only the master port is dropped: node 0 is reached otherwise, and that is said."""
    closed: dict[Path, Outcome] = {(node, 0, "master"): "timeout" for node in range(1, 32)}

    (verdict,) = failed_paths.judge(mesh(32, closed))

    assert (verdict.code, verdict.nodes) == ("port-filtered", [0])
    assert verdict.sentence == (
        "the other nodes -> node 0 (10.0.0.0) port 29500: no answer in 0 s while port 40000 answers: "
        "a firewall drops this port (31 paths)"
    )


def test_where_torch_s_own_ports_are_closed_the_one_that_answers_is_told() -> None:
    """All ports but the master's are dropped everywhere."""
    closed: dict[Path, Outcome] = {
        (r.node, r.peer, r.what): "timeout" for r in mesh(4, {}) if r.what == "responder"
    }

    (verdict,) = failed_paths.judge(mesh(4, closed))

    assert verdict.code == "port-filtered"
    assert verdict.sentence == (
        "nodes 0-3 cannot reach one another on any port: no answer in 0 s, while port 29500 answers: "
        "a firewall drops it (12 paths)"
    )


def test_independent_cuts_are_verdicts_of_their_own_up_to_a_few() -> None:
    """Six pairs without a path: four are told, and how much is left."""
    pairs = [(1, 9), (2, 11), (3, 13), (4, 15), (5, 17), (6, 19)]
    bad = {path: outcome for a, b in pairs for path, outcome in between(a, b, "timeout").items()}

    found = failed_paths.judge(mesh(32, bad))

    assert [list(pair) for pair in pairs[:3]] == [verdict.nodes for verdict in found[:3]]
    assert found[3].nodes == sorted(node for pair in pairs[3:] for node in pair)
    assert found[3].sentence.endswith("(and 4 more paths elsewhere)")


# --- Addresses and prefixes of several nodes: what a router may join, and what is a mistake.


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
