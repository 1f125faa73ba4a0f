"""What strangers say commands no terminal and turns nothing around."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.text.printable import printable

EVIL = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069\ufeff\U000e0001\udc80",
]


@pytest.mark.parametrize("char", EVIL, ids=ascii)
def test_what_does_not_print_is_shown_as_an_escape(char: str) -> None:
    """C0, C1, the marks of direction, line separators, invisible tags, and bytes that are no text."""
    shown = printable(f"a{char}b")

    assert shown.isprintable()
    assert f"a{ascii(char)[1:-1]}b" == shown


def test_what_prints_stays_as_it_is() -> None:
    """In any language; an escape that was text before stays text; newlines, where they are asked for."""
    assert "Ж中é\\x1b 'x'" == printable("Ж中é\\x1b 'x'")
    assert "two\nlines\\r" == printable("two\nlines\r", lines=True)


def test_no_verdict_holds_what_a_terminal_obeys() -> None:
    """It goes into Slurm's Comment and a pod's termination message as it is."""
    evil = "".join(EVIL)
    verdict = Verdict.of("a" + evil, "b" + evil, "run", facts=["c" + evil], hint="d" + evil)

    assert all(map(str.isprintable, [verdict.code, verdict.sentence, *verdict.facts, verdict.hint]))
