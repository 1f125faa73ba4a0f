"""Formats a verdict for a log. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ddplaunch.agent.contract import Exit, Marks, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import some

_WIDTH = 100
_ALARM = "nothing moves; "


def block(verdicts: Sequence[Verdict], final: bool, names: Sequence[str] = ()) -> list[str]:
    """Lines, framed by rules so that eyes find them between a thousand steps.

    `final`: the job ends by it. `names`: of the job's nodes, for verdicts whose sentences speak of ranks.
    """
    head = "verdict" if final else f"notice: {_ALARM if _hangs(verdicts) else ''}the job goes on"
    lines = [f"{Marks.FRAME} ddplaunch {head} ".ljust(_WIDTH, "-")]
    for verdict in verdicts:
        lines += _wrapped(f"{verdict.code}: ", verdict.sentence)
        known = sorted(verdict.nodes) in verdict.named
        if verdict.ranks and subjects.are_named(verdict.nodes, names) and not known:
            where = phrases.nodes(verdict.nodes, names)
            lines += _wrapped("    ", f"{some('rank', verdict.ranks)}: on {where}")
        for fact in verdict.facts:
            lines += _wrapped("    - ", fact)
        if verdict.victims:
            lines += _wrapped("    ", f"victims: {some('rank', verdict.victims)}")
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
