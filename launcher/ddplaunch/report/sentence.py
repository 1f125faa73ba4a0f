"""Splits a verdict's sentence at the culprits in it, so that a page can set them off. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.text.saying import Subject, spelled_parts

_MOST = 64
"""The most culprits that are set off one by one."""


class Piece(NamedTuple):
    """A part of a sentence; `culprit`: it names those at fault, and nobody else."""

    text: str
    culprit: bool


def pieces(verdict: Verdict) -> list[Piece]:
    """Return the sentence in pieces, which together are the sentence."""
    found: list[Piece] = []
    for part, shown in zip(verdict.text, spelled_parts(verdict.text, verdict.machines), strict=True):
        culprit = isinstance(part, Subject) and _is_culprit(verdict, part)
        if found and not culprit and not found[-1].culprit:
            found[-1] = Piece(found[-1].text + shown, False)
        else:
            found.append(Piece(shown, culprit))
    return found


def _is_culprit(verdict: Verdict, subject: Subject) -> bool:
    """Whether the subject is all of the culprits, or one."""
    noun, culprits = ("rank", verdict.ranks) if verdict.ranks else ("node", verdict.nodes)
    if subject.noun != noun or any(part.address for part in subject.parts):
        return False
    if subject.count == 1:
        return next(subject.numbers) in culprits[:_MOST]
    return subject.count == len(culprits) and list(subject.numbers) == sorted(culprits)
