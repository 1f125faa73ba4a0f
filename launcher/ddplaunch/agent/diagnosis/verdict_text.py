"""Formats a verdict for a log. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable

_WIDTH = 100
_ALARM = "nothing moves; "


def block(verdicts: Sequence[Verdict], final: bool, names: Sequence[str] = ()) -> list[str]:
    """Lines, framed by rules so that eyes find them between a thousand steps.

    `final`: the job ends by it. `names`: of the job's nodes, for verdicts whose sentences speak of ranks.
    """
    head = "verdict" if final else f"notice: {_ALARM if _hangs(verdicts) else ''}the job goes on"
    lines = [f"---- ddplaunch {head} ".ljust(_WIDTH, "-")]
    for verdict in verdicts:
        lines += _wrapped(f"{verdict.code}: ", verdict.sentence)
        where = phrases.nodes(verdict.nodes, names)
        if verdict.ranks and "(" in where and where not in verdict.sentence:
            lines += _wrapped("    ", f"{_ranks(verdict.ranks)}: on {where}")
        for fact in verdict.facts:
            lines += _wrapped("    - ", fact)
        if verdict.victims:
            lines += _wrapped("    ", f"only waiting, or ended by it: {_ranks(verdict.victims)}")
        if verdict.hint:
            lines += _wrapped("    hint: ", verdict.hint)
        lines.append(f"    more: ddplaunch explain {verdict.code}")
    return [*lines, "-" * _WIDTH]


def _hangs(verdicts: Sequence[Verdict]) -> bool:
    return any(CATALOGUE[verdict.code].exit_code == Exit.HANG for verdict in verdicts)


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * min(len(label), 8),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ranks(numbers: Sequence[int]) -> str:
    """'ranks 0-2, 5'."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    names = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(names)
