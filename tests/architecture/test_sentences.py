"""Nothing reads a sentence: what a verdict says to people is no data, and one module spells it out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).parents[2] / "launcher"
SOURCES = sorted(LAUNCHER.rglob("*.py"))
TEXTS = {"sentence", "hint"}
READS = re.compile(
    "r?split|r?partition|replace|translate|[lr]?strip|r?find|r?index|count|startswith|endswith|remove(prefix|suffix)"
)
"""Methods of a text that look into it."""
MATCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "compile"}
"""Functions of `re`, and methods of a pattern."""


def is_text(node: ast.AST) -> bool:
    """Whether it is a verdict's sentence, hint or one of its facts, or made of one."""
    return any(isinstance(each, ast.Attribute) and each.attr in TEXTS for each in ast.walk(node))


def reads(source: str) -> list[int]:
    """Return the lines in which a program looks into a verdict's text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            contains = any(isinstance(each, (ast.In, ast.NotIn)) for each in node.ops)
            guilty = contains and isinstance(
                node.left, (ast.Attribute, ast.NamedExpr, ast.Constant, ast.Call)
            )
            texts = [node.left, *node.comparators] if guilty else []
            found += [node.lineno for each in texts if is_text(each) and not isinstance(each, ast.SetComp)]
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and is_text(node.value)
        ):
            found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            own, others = node.func.value, node.args
            if READS.fullmatch(node.func.attr) and isinstance(own, ast.Attribute) and own.attr in TEXTS:
                found.append(node.lineno)
            if node.func.attr in MATCHES and any(is_text(each) for each in others):
                found.append(node.lineno)
    return found


def test_no_sentence_is_read() -> None:
    """Neither cut, nor searched, nor changed: a rule writes it once, with its subjects."""
    found = {path.relative_to(LAUNCHER): reads(path.read_text("utf-8")) for path in SOURCES}

    assert {} == {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    "line",
    [
        "x = each.sentence.replace('a', 'b')",
        "x = verdict.hint.partition('; ')",
        "x = 'node 2' in verdict.sentence",
        "x = verdict.sentence in lines",
        "x = verdict.sentence[:5]",
        "x = re.search('node', verdict.sentence)",
        "x = PATTERN.sub('', f'{verdict.hint}')",
    ],
)
def test_the_guard_sees_it(line: str) -> None:
    """Every way in which one was read before."""
    assert [1] == reads(line)


def test_one_formatter_writes_ranges_of_numbers() -> None:
    """Numbers that follow one another are put together in one module."""
    makes = [
        path.relative_to(LAUNCHER).as_posix()
        for path in SOURCES
        if re.search(r"== \w+\[-1\](\[-1\])? \+ 1", path.read_text("utf-8"))
    ]
    assert ["ddplaunch/agent/text/quantities.py"] == makes


def test_no_text_holds_data_between_marks() -> None:
    """Nodes and ranks are objects; the noncharacters of Unicode, which marked them once, are nowhere."""
    marks = re.compile(r"\\ufd[d-e]|[\ufdd0-\ufdef]", re.IGNORECASE)
    users = [
        path.relative_to(LAUNCHER).as_posix() for path in SOURCES if marks.search(path.read_text("utf-8"))
    ]
    assert [] == users
