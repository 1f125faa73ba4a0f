"""The table of the gate's checks."""

from __future__ import annotations

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import CheckResult
from ddplaunch.report.checks import checks_text, findings

TABLE = """\
names  pass     nodes 0-1
port   FAIL     node 0: held by pid 812; wanted a free port
                hint: stop pid 812
clock  unknown  node 1: no peer
node 1 to node 0, 10.0.0.1:4000: timeout (5 s)
2 connections between nodes tried, 1 failed"""


def test_one_line_per_check_and_result() -> None:
    """Nodes with the same result share a line, and only what did not pass is explained."""
    assert TABLE == checks_text(given.bundle())


def test_results_of_one_check_stand_together() -> None:
    """Though each node measured something else."""
    check_ins = [
        given.check_in(node, CheckResult("cpu", "unknown", f"load {node}"), CheckResult("disk", "pass", ""))
        for node in (0, 1)
    ]
    table = checks_text(given.bundle(check_ins=check_ins))

    assert ["cpu", "cpu", "disk"] == [line.split()[0] for line in table.splitlines()[:3]]


def test_of_many_wordings_the_first_are_told_and_all_nodes_counted() -> None:
    """Four hundred nodes measure four hundred loads, and the table stays one that a person reads."""
    check_ins = [given.check_in(node, CheckResult("cpu", "unknown", f"load {node}")) for node in range(400)]
    found = findings(given.bundle(nodes=400, check_ins=check_ins))

    assert [f"load {node}" for node in range(8)] == [each.text for each in found[:8]]
    assert [("similar, with other values", list(range(8, 400)))] == [
        (each.text, each.nodes) for each in found[8:]
    ]


def test_machines_are_called_by_their_names() -> None:
    """Somebody has to go there; of those that passed the numbers do."""
    lines = checks_text(given.bundle(), names=["n1", "n2"]).splitlines()

    assert "port   FAIL     node 0 (n1): held by pid 812; wanted a free port" in lines
    assert "names  pass     nodes 0-1" in lines
    assert "node 1 (n2) to node 0 (n1), 10.0.0.1:4000: timeout (5 s)" in lines
