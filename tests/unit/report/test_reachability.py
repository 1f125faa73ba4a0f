"""The matrix of paths between nodes, as letters and as a picture."""

from __future__ import annotations

import re

import pytest
from tests.unit.report import conftest as given
from tests.unit.report.pages import read

from ddplaunch.agent.contract import Bundle, CheckIn, MeshResult, Outcome
from ddplaunch.agent.hub import mesh_plan
from ddplaunch.report import Diagnosis, gate_results, html, machine
from ddplaunch.report.pictures import reachability as drawing


def result(node: int, peer: int, outcome: Outcome, detail: str = "", seconds: float = 0.01) -> MeshResult:
    """Of one path to a peer's own port."""
    return MeshResult(node, peer, f"10.0.0.{peer}", 40000 + peer, "responder", outcome, detail, seconds)


def bundle(nodes: int, *told: MeshResult, passed: dict[str, dict[str, int]] | None = None) -> Bundle:
    """Of nodes n0, n1 and so on."""
    check_ins = [
        CheckIn(
            node, f"n{node}", nodes, 1, f"10.0.0.{node}", {"responder": 40000 + node, "master": 29500}, 0.0
        )
        for node in range(nodes)
    ]
    changes = {"nodes": nodes, "check_ins": check_ins, "mesh": list(told), "passed": passed or {}}
    return given.bundle(**changes)


def drawn(found: Bundle) -> str:
    """The picture's SVG."""
    picture = drawing.picture(found)
    assert picture is not None
    return picture.svg + "\n" + "\n".join(picture.notes)


@pytest.mark.parametrize(
    ("results", "letter"),
    [
        ([], "."),
        ([result(0, 1, "ok")], "o"),
        ([result(0, 1, "ok", seconds=1.2)], "s"),
        ([result(0, 1, "ok", "2 of 5 tries failed")], "s"),
        ([result(0, 1, "stalled")], "p"),
        ([result(0, 1, "lossy")], "p"),
        ([result(0, 1, "refused")], "r"),
        ([result(0, 1, "stranger")], "r"),
        ([result(0, 1, "timeout")], "t"),
        ([result(0, 1, "unreachable")], "t"),
        ([result(0, 1, "ok"), result(0, 1, "refused"), result(0, 1, "stalled")], "r"),
    ],
)
def test_the_worst_of_several_tries_counts(results: list[MeshResult], letter: str) -> None:
    assert letter == gate_results.path_state(results)
    assert letter in gate_results.STATES


def test_one_row_of_letters_for_each_node() -> None:
    """What just passed is kept apart from what failed, and both are in the matrix."""
    found = bundle(3, result(1, 2, "timeout"), passed={"0": {"1": 3, "2": 1500}, "2": {"master": 2}})

    assert [".os", "..t", "o.."] == gate_results.matrix_rows(found)


def test_a_terminal_has_a_row_for_each_node() -> None:
    found = bundle(11, result(10, 2, "timeout"), passed={"0": {"10": 3}})
    lines = gate_results.map_lines(found)

    assert ["to                 1", "         01234567890", "from  0  ..........o"] == lines[:3]
    assert ["from 10  ..t........", ". not tried", "o passes", "t no answer, or no route"] == lines[-4:]


def test_nodes_of_a_large_job_that_are_alike_share_a_row() -> None:
    passed = {str(node): {str((node + 1) % 100): 3} for node in range(99)}
    found = bundle(100, result(5, 7, "timeout"), result(6, 9, "refused"), passed=passed)

    assert [
        "from node 5: 1 no answer, or no route, 1 passes",
        "from node 6: 1 refused, reset, or answered by another program, 1 passes",
        "from nodes 0-4, 7-98: 97 passes",
        "from node 99: nothing was tried",
    ] == gate_results.map_lines(found)


def test_doctor_gives_the_matrix_to_scripts(diagnosis: Diagnosis) -> None:
    """Beside all that `diagnose` gives."""
    data = machine.doctor_data(diagnosis)

    assert data["reachability"]["rows"] == [".o", "t."]
    assert {"node": 0, "check": "names", "status": "pass"}.items() <= data["checks"][0].items()
    assert data["reachability"]["legend"].keys() >= {".", "o", "t"}
    assert machine.diagnosis_data(diagnosis).items() <= data.items()


def test_a_cell_tells_nodes_address_port_and_outcome() -> None:
    """Pointing at it is enough; a host's name is a stranger's text."""
    found = bundle(2, result(1, 0, "timeout", "5 tries <&"), passed={"0": {"1": 7}, "1": {"master": 4}})

    page = drawn(found)

    read(page)
    assert "<title>node 0 (n0) to node 1 (n1): 10.0.0.1 port 40001: ok in 0.01 s</title>" in page
    assert (
        "<title>node 1 (n1) to node 0 (n0): 10.0.0.0 port 40000: timeout, 5 tries &lt;&amp; in 0.01 s; "
        "10.0.0.0 port 29500 (master): ok in 0.00 s</title>"
    ) in page
    assert "no answer, or no route: 1" in page


def test_hundreds_of_nodes_stay_one_small_picture() -> None:
    """What fails stands for itself, what passes is told row by row; a cell has three pixels at least."""
    nodes = 400
    partners = mesh_plan.partners(nodes)
    passed = {str(n): {str(p): 2 for p in peers if 17 not in (n, p)} for n, peers in enumerate(partners)}
    told = [result(17, peer, "timeout") for peer in partners[17]]
    page = drawn(bundle(nodes, *told, passed=passed))

    assert "scale(3)" in page
    # One more of each is in the legend.
    assert page.count('class="reach-t"') - 1 == len(partners[17])
    assert page.count('class="reach-o"') - 1 == nodes - 1
    assert len(page) < 300_000


def test_of_thousands_of_nodes_several_share_a_cell() -> None:
    """A cell then counts: how many paths were tried, and how they failed."""
    nodes = 1000
    page = drawn(bundle(nodes, result(3, 7, "timeout"), result(4, 8, "refused")))

    assert "3 nodes in one" in page
    assert "<title>nodes 3-5 to nodes 6-8: 2 paths tried, 1 timeout, 1 refused</title>" in page


def test_every_state_has_its_colour_in_light_and_in_dark() -> None:
    """A letter without one would be drawn black, which is another letter's."""
    page = html.page(Diagnosis(given.job(), bundle(2, result(0, 1, "ok")), []))

    for letter in {*gate_results.STATES} - {gate_results.UNTRIED} | {"untried", "self"}:
        assert len(re.findall(rf"--reach-{letter}: #[0-9a-f]{{6}};", page)) == 2
        assert f".reach-{letter} {{ fill: var(--reach-{letter}); }}" in page


def test_without_a_mesh_there_is_no_picture() -> None:
    """The check was skipped, or nobody came so far."""
    assert drawing.picture(bundle(2)) is None
