"""YAML that cannot be read, in our own words."""

from __future__ import annotations

import pytest

from ddplaunch.spec import document
from ddplaunch.spec.problems import SpecError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\n\tb: 2", "2:1 a tab"),
        ("a:\n\tb: 2", "2:1 a tab"),
        ("a: b: c", "1:5 a second ': ' in one line, or a line that is indented too far"),
        ("a: 'x", "1:4 the end of the file inside quotes"),
        ("a: 1\nb: [x,\nc: 2", "2:4 no ']'"),
        ("a: 1\nb: {x: 1", "2:4 no '}'"),
        ("a: 1\nword\nb: 2\n", "2:1 a line without ':'"),
        ("- a\nb: 1", "2:1 no '- '"),
        ("a: |\n  x\n y: 1", "3:2 no key"),
        ("  a: 1\n b: 2", "2:2 something beside the job"),
        ("a: @x", "1:4 a value that begins with @"),
        ("a: %x", "1:4 a value that begins with %"),
        ('a: "\\q"', "1:5 a backslash that begins no escape"),
        ('a: "\\ud83d\\ude00"', "1:7 an escape that is no character"),
        ("a: & x", "1:5 & or * before something that is no name"),
        ("a: *", "1:5 & or * before something that is no name"),
        ("a: !foo!bar 1", "1:4 a YAML tag"),
        ("a: ]", "1:4 no value, or a bracket out of place"),
        ("%YAML 2.0\n---\na: 1", "1:1 another version of YAML"),
        ("a: x\nb: \x07", "2:4 the control character U+0007"),
    ],
)
def test_a_syntax_error_is_said_in_our_words(text: str, found: str) -> None:
    """At the place where mending begins, with what is wanted and a hint."""
    with pytest.raises(SpecError) as caught:
        document.parse(text, "f")

    (problem,) = caught.value.problems
    assert found == f"{problem.line}:{problem.column} {problem.found}"
    assert problem.wanted
    assert problem.hint


def test_an_unknown_complaint_of_the_parser_is_passed_on() -> None:
    """A message that has no words of ours yet is shown as the parser gives it."""
    with pytest.raises(SpecError, match=r"f:1:5: found text that is not YAML \(.+\), wanted YAML"):
        document.parse("a: |0\n x\n", "f")
