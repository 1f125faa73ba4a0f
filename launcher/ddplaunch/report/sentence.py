"""Splits a verdict's sentence at its mentions of the culprits, so that a page can set them off. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text import mentions

_EDGE = "\0"
"""Both ends of a mention while all are spelled out: no printable text has it."""
_MOST = 64
"""The most culprits that are set off one by one."""


class Piece(NamedTuple):
    """A part of a sentence; `culprit`: it names those at fault, and nobody else."""

    text: str
    culprit: bool


def pieces(verdict: Verdict, names: Sequence[str] = ()) -> list[Piece]:
    """Return the sentence in pieces, which together are the sentence. `names`: of the job's nodes."""
    marked: str = verdict.wording
    for mention in _mentions(verdict, names):
        marked = marked.replace(mention, f"{_EDGE}{mention}{_EDGE}")
    parts = mentions.filled(marked, verdict.machines or {}).split(_EDGE)
    return [Piece(part, number % 2 == 1) for number, part in enumerate(parts) if part]


def _mentions(verdict: Verdict, names: Sequence[str]) -> set[str]:
    """Return how the sentence may mention the culprits: all of them, or one."""
    if verdict.ranks:
        return {
            subjects.ranks(ranks) for ranks in (verdict.ranks, *([each] for each in verdict.ranks[:_MOST]))
        }
    several = [verdict.nodes, *([each] for each in verdict.nodes[:_MOST])]
    return {subjects.nodes(nodes, known) for nodes in several if nodes for known in (names, ())}
