"""Rules over failed paths: which fault they show, and which end is named."""

from __future__ import annotations

import itertools

import pytest

from ddplaunch.agent.contract import MeshResult, Outcome
from ddplaunch.agent.diagnosis.gate import failed_paths

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
