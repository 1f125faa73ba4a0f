"""The table of the gate's checks."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import CheckResult, MeshResult
from ddplaunch.report.gate_results import checks_text, findings

TABLE = """\
2 connections between nodes tried, 1 failed; those that passed took 0.0 ms, a large message included
to      01
from 0  .o
from 1  t.
. not tried
o passes
t no answer, or no route
round trips and path MTU: not seen
node 1 to node 0, 10.0.0.1:4000: timeout (5 s)

NODE  HOST   ADDRESS
0     host0  127.0.0.1
1     host1  127.0.0.1

names  pass     nodes 0-1: 127.0.0.1
port   FAIL     node 0: held by pid 812; wanted a free port
                hint: stop pid 812
clock  unknown  node 1: no peer"""


def test_one_line_per_check_and_result() -> None:
    """The map first, then how nodes are reached, then what each check has found."""
    assert TABLE == checks_text(given.bundle())


def test_results_of_one_check_stand_together() -> None:
    check_ins = [
        given.check_in(node, CheckResult("cpu", "unknown", f"load {node}"), CheckResult("disk", "pass", ""))
        for node in (0, 1)
    ]
    table = checks_text(given.bundle(check_ins=check_ins))

    assert ["cpu", "cpu", "disk"] == [line.split()[0] for line in table.splitlines()[-3:]]


def test_of_many_wordings_the_first_are_told_and_all_nodes_counted() -> None:
    """Four hundred nodes measure four hundred loads, and the table stays one that a person reads."""
    check_ins = [given.check_in(node, CheckResult("cpu", "unknown", f"load {node}")) for node in range(400)]
    found = findings(given.bundle(nodes=400, check_ins=check_ins))

    assert [f"load {node}" for node in range(8)] == [each.text for each in found[:8]]
    assert [("similar, with other values", list(range(8, 400)))] == [
        (each.text, each.nodes) for each in found[8:]
    ]


def test_machines_are_called_by_their_names() -> None:
    lines = checks_text(given.bundle(), names=["n1", "n2"]).splitlines()

    assert "port   FAIL     node 0 (n1): held by pid 812; wanted a free port" in lines
    assert "names  pass     nodes 0-1: 127.0.0.1" in lines
    assert "node 1 (n2) to node 0 (n1), 10.0.0.1:4000: timeout (5 s)" in lines


def test_a_check_that_does_not_apply_says_so() -> None:
    check_in = given.check_in(
        0, CheckResult("gpus", "pass", "no GPU"), CheckResult("disk", "pass", "1 GiB free")
    )
    found = given.bundle(
        nodes=1, check_ins=[dataclasses.replace(check_in, facts={"gpus": {"devices": {}}})], mesh=[]
    )

    assert ["gpus  n/a      node 0: no GPU", "disk  pass     node 0: 1 GiB free"] == checks_text(
        found
    ).splitlines()[-2:]
    assert "there is one node, and no path between nodes" == checks_text(found).splitlines()[0]


def test_nodes_that_passed_with_other_numbers_share_a_line() -> None:
    """With the range of what they measured; where only words tell it, with the first ones."""
    check_ins = [
        dataclasses.replace(
            given.check_in(
                node,
                CheckResult("memory", "pass", f"{node + 1} GiB free"),
                CheckResult("names", "pass", f"n{node} is here"),
            ),
            facts={"memory": {"free": (node + 1) << 30, "total": 2**40}},
        )
        for node in range(200)
    ]
    found = [(each.check, each.text, len(each.nodes)) for each in findings(given.bundle(check_ins=check_ins))]

    assert [
        ("memory", "1 to 200 GiB free of 1 TiB", 200),
        ("names", "n0 is here", 1),
        ("names", "n1 is here", 1),
        ("names", "n2 is here", 1),
        ("names", "similar, with other values", 197),
    ] == found


def test_of_many_failed_connections_the_first_are_listed() -> None:
    mesh = [MeshResult(0, peer, "10.0.0.1", 4000, "responder", "timeout") for peer in range(1, 31)]
    lines = checks_text(given.bundle(nodes=31, mesh=mesh)).splitlines()

    assert 20 == sum(line.startswith("node 0 to node ") for line in lines)
    assert "… and 10 more" in lines
