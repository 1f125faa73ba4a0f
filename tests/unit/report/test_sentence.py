"""The culprits in a sentence are set off."""

from __future__ import annotations

import dataclasses

from tests.unit.report import conftest as given

from ddplaunch.agent.system import subjects
from ddplaunch.agent.text.saying import say
from ddplaunch.report import html
from ddplaunch.report.html import Piece


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
