"""The HTML report is one file, complete, and proof against what a job says."""

from __future__ import annotations

import dataclasses
import re

import pytest
from tests.unit.report import conftest as given
from tests.unit.report.pages import read

from ddplaunch.agent.contract import CheckResult, Verdict
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.saying import say
from ddplaunch.report import Diagnosis, html
from ddplaunch.report.html import Piece


def test_it_fetches_nothing(diagnosis: Diagnosis) -> None:
    """No script, link, image or import: it can be read years later, without a network."""
    page = html.page(diagnosis)
    found = read(page)

    assert [] == found.fetched
    assert set() == found.tags & {"script", "link", "img", "iframe"}
    assert None is re.search(r"url\(|@import|https?:", page)


@pytest.mark.parametrize(
    "text",
    [
        "rank 0 has been in evaluate() (train.py:140) for 96 s, the others wait in barrier",
        "rank 0 on node 0 (host0)",
        "ranks 1-3",
        "ranks 1-3 stand in barrier 17",
        "call evaluate() on all ranks, or none",
        "ddplaunch explain rank-in-user-code",
        "local://digits/3",
        "evaluate (train.py:140)",
        "no progress for 1 min 36 s",
        "killed by signal 9",
        "512 MiB of 1 GiB",
        "held by pid 812",
        "node 1 to node 0",
        "it was free",
        "py-spy: not permitted (ptrace) (node 1)",
        "the verdict & its event",
        "main  /src/train.py:12",
    ],
)
def test_everything_known_is_in_it(diagnosis: Diagnosis, text: str) -> None:
    """Verdict, ranks, stacks, nodes, gate, connections, events."""
    assert text in read(html.page(diagnosis)).text


def test_what_a_job_says_is_escaped(diagnosis: Diagnosis) -> None:
    """A log line or an exception with tags in it stays text."""
    tag = "<script>alert(1)</script>"
    wild = Verdict.of(tag, tag, "run", nodes=[0], ranks=[0], victims=[1, 2, 3], facts=[tag], hint=tag)
    page = html.page(dataclasses.replace(diagnosis, verdicts=[wild], job=given.job(detail=tag)))

    assert "<script>" not in page
    assert "<b>epoch" not in page
    # Sentence, hint, fact, the job's detail; in the title and below the sentence the code; the exception of a
    # rank with its stack and in the picture.
    assert 8 == page.count("&lt;script&gt;alert(1)&lt;/script&gt;")


def test_an_ended_rank_waits_no_more(diagnosis: Diagnosis) -> None:
    """Its last call had not returned when it ended."""
    text = " ".join(read(html.page(diagnosis)).text.split())

    assert "all_reduce 17 [4] had not returned" in text
    assert "all_reduce 17 [4] waits" in text


def test_the_gate_of_hundreds_of_nodes_is_a_short_table() -> None:
    """One row for each check and result; what every node found is behind a word, to be opened."""
    checks = [CheckResult(name, "pass", "fine") for name in ("names", "port", "shm", "clock")]
    check_ins = [
        given.check_in(node, *checks, CheckResult("cpu", "unknown", f"load {node}")) for node in range(400)
    ]
    bundle = given.bundle(nodes=400, check_ins=check_ins)
    page = html.page(Diagnosis(given.job(), bundle, []))
    gate = page[page.index("<h2>Gate</h2>") : page.index("<h2>Connections between nodes</h2>")]
    shown, _, folded = gate.partition("<details>")

    assert 1 + 4 + 9 == shown.count("<tr>")
    assert "load 399" not in shown
    assert "load 399" in folded


# --- the culprits in a sentence are set off


def test_nodes_at_fault_are_set_off_with_their_names() -> None:
    """And with the machines that are known of them."""
    names = ["n1", "n2"]
    text = say(subjects.node(0, names), " does not reach ", subjects.node(1, names))
    verdict = dataclasses.replace(given.VERDICT, text=text, ranks=[], nodes=[1]).on({1: "worker2"})

    assert Piece("node 1 (n2 on worker2)", True) == html.pieces(verdict)[-1]


def test_a_sentence_without_subjects_is_one_piece() -> None:
    """A rule may have written it by itself."""
    assert [Piece(given.VERDICT.sentence, False)] == html.pieces(given.VERDICT)


def test_several_culprits_are_set_off_together() -> None:
    text = say(subjects.ranks([1, 3]), " are in evaluate")
    verdict = dataclasses.replace(given.VERDICT, text=text, ranks=[1, 3])

    assert Piece("ranks 1 and 3", True) == html.pieces(verdict)[0]
