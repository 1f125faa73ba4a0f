"""YAML text to nodes with places, or to what is wrong with it in our own words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ddplaunch.spec import document
from ddplaunch.spec.problems import SpecError


def _data(text: str) -> Any:
    root, problems = document.parse(text, "job.yaml")

    assert problems == []
    return document.data(root)


def _place(root: document.Node, path: tuple[str | int, ...]) -> tuple[int, int]:
    node, _ = document.find(root, path)
    return node.line, node.column


def _problems(text: str) -> list[str]:
    """Place, path and what was found, of a text that has a tree or none."""
    try:
        _, problems = document.parse(text, "f")
    except SpecError as error:
        problems = list(error.problems)
    return [f"{problem.line}:{problem.column} {problem.path}: {problem.found}" for problem in problems]


def _scalar(text: str) -> tuple[Any, str]:
    node, _ = document.parse(text, "f")
    assert isinstance(node, document.Scalar)
    return node.value, node.reading


@pytest.mark.parametrize(
    ("text", "value", "reading"),
    [
        ("x", "x", ""),
        ("'8'", "8", ""),
        ("!!str 8", "8", ""),
        ("! 8", "8", ""),
        ("8", 8, ""),
        ("-8", -8, ""),
        ("1.5", 1.5, ""),
        ("1e5", "1e5", ""),
        ("true", True, ""),
        ("False", False, ""),
        ("~", None, ""),
        ("no", False, "false"),
        ("On", True, "true"),
        ("010", 8, "the number 8"),
        ("0x1F", 31, "the number 31"),
        ("1_000", 1000, "the number 1000"),
        ("1:30", 90, "the number 90"),
        ("1:30:00", 5400, "the number 5400"),
        ("2024-01-01", "2024-01-01", "a date"),
        (".inf", ".inf", "a number that is not finite"),
        (".nan", ".nan", "a number that is not finite"),
        ("1.0e+999", "1.0e+999", "a number that is not finite"),
        ("0b_", "0b_", ""),
        ("9" * 25, "9" * 25, "a number beyond 64 bits"),
        ("9" * 5000, "9" * 5000, "a number with very many digits"),
        ("1" + ":00" * 5000, "1" + ":00" * 5000, "a number with very many digits"),
    ],
)
def test_a_scalar_says_where_yaml_surprises(text: str, value: object, reading: str) -> None:
    """What YAML 1.1 makes of a word is kept beside the word, if it is not what the eye reads."""
    assert (value, reading) == _scalar(text)


def test_merge_keys_are_merged() -> None:
    """The mapping's own keys win, then the earlier of the merged ones."""
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], x: 5}\nd: {y: 6, <<: *a}\n"
    merged = _data(text)

    assert {"x": 5, "y": 2, "z": 4} == merged["c"]
    assert {"x": 1, "y": 6} == merged["d"]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('"<<": {x: 1}', {"<<": {"x": 1}}),  # only the plain `<<` merges
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),  # the latest anchor of a name counts
        ("&k a: *k", {"a": "a"}),
    ],
)
def test_anchors_and_quoted_merge_keys_mean_what_yaml_says(text: str, data: dict[str, Any]) -> None:
    assert data == _data(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\na: 3", "3:1 a: this key a second time"),
        ("a: {<<: {}, <<: {}}", "1:13 a.<<: this key a second time"),
        ("a: {<<: 3}", "1:9 a.<<: something that is not a mapping"),
        ("3: x", "1:1 : the key 3"),
        ("? \n: x", "1:2 : a key that is not text"),
        ("on: x", "1:1 : the key on (which YAML reads as true)"),
        ("? [a]\n: b", "1:3 : a key that is an alias, a list or a mapping"),
        ("a: !!python/object:os.system x", "1:4 a: a YAML tag"),
        ("a: !!set {x, y}", "1:4 a: a YAML tag"),
        ("a: *x", "1:4 a: an alias without an anchor"),
        ("a: &x [*x]", "1:8 a[0]: an anchor inside itself"),
        ("a: &x {<<: *x}", "1:12 a.<<: an anchor inside itself"),
        ("", "1:1 : no job in it"),
        ("# words\n", "2:1 : no job in it"),
        ("a: 1\n---\nb: 2\n", "2:1 : a second document"),
    ],
)
def test_a_structure_that_no_job_has_is_a_problem(text: str, found: str) -> None:
    """Whatever YAML would let pass in silence is said, with its place."""
    assert [found] == _problems(text)


def test_problems_do_not_hide_one_another() -> None:
    """A key given twice does not end the reading of the file."""
    assert 3 == len(_problems("a: 1\na: 2\n3: x\nb: !x y\n"))


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "[{a: "])
def test_depth_has_a_limit(opening: str) -> None:
    """A text that nests without end is refused at once, and does not exhaust the stack."""
    (problem,) = _problems(opening * 200_000)

    assert f"more than {document.MAX_DEPTH} levels" in problem


def test_a_billion_laughs_end_early() -> None:
    """Aliases of aliases are counted by what they stand for, before anything is made of them."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, name in pairwise("abcdefghi"):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    (problem,) = _problems("\n".join(lines))

    assert f"more than {document.MAX_NODES} values once all aliases are followed" in problem


def test_many_plain_values_are_refused_too() -> None:
    (problem,) = _problems("[" + "x," * (document.MAX_NODES + 1) + "]")

    assert "more than" in problem


def test_every_value_has_its_place() -> None:
    """Lines and columns count from 1; what is not there has the place of what is nearest above it."""
    root, _ = document.parse("a: 1\nb:\n  - {c: 2}\n", "f")

    assert (1, 4) == _place(root, ("a",))
    assert (3, 9) == _place(root, ("b", 0, "c"))
    assert (3, 5) == _place(root, ("b", 0, "nowhere"))
    assert (3, 3) == _place(root, ("b", 7))
    assert (1, 1) == _place(root, ("nowhere",))


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
        ("  a: 1\n b: 2", "2:2 something next to the job"),
        ("a: @x", "1:4 a value that begins with @"),
        ("a: %x", "1:4 a value that begins with %"),
        ('a: "\\q"', "1:5 a backslash before a character that cannot be escaped"),
        ('a: "\\ud83d\\ude00"', "1:7 an escape that is not a character"),
        ("a: & x", "1:5 & or * before something that is not a name"),
        ("a: *", "1:5 & or * before something that is not a name"),
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
