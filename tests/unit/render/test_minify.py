"""The agent is sent without docstrings, comments and types, and still says the same to Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ddplaunch.render.minify import minify

AGENT = Path(__file__).resolve().parents[3] / "launcher" / "ddplaunch" / "agent"


class Untyped(ast.NodeTransformer):
    """Takes the types off what is assigned to; those of classes' own fields stay."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """A class, with its methods untyped."""
        node.body = [each if isinstance(each, ast.AnnAssign) else self.visit(each) for each in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """An assignment like any other."""
        return node if node.value is None else ast.copy_location(ast.Assign([node.target], node.value), node)


def meaning(source: str) -> tuple[str, list[int]]:
    """The syntax tree without docstrings' content and types, and the line of each part of it."""
    tree = Untyped().visit(ast.parse(source))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = "" if isinstance(node.value.value, str) else node.value.value
    return ast.dump(tree), [node.lineno for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.expr))]


@pytest.mark.parametrize("path", sorted(AGENT.rglob("*.py")), ids=lambda path: str(path.relative_to(AGENT)))
def test_every_file_of_the_agent_keeps_its_meaning(path: Path) -> None:
    """Same syntax tree, same lines: only docstrings, comments and functions' types are gone."""
    source = path.read_text("utf-8")

    assert meaning(source) == meaning(minify(source))
    assert len(source) > len(minify(source))


def test_no_file_of_the_agent_reads_its_docstring() -> None:
    """A docstring that is shown to somebody would be empty on the nodes."""
    assert [] == [path for path in AGENT.rglob("*.py") if "__doc__" in path.read_text("utf-8")]


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ('"""Says what."""\n\nx = 1  # why\n', '""\n\nx = 1\n'),
        ('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n', 'def f():\n ""\n\n\n\n return 1\n'),
        ('class A:\n    """Only this."""\n', 'class A:\n ""\n'),
        ("x = '#'  # '\ny = \"it's # here\"\n", "x = '#'\ny = \"it's # here\"\n"),
        ('x = """\n    # stays\n"""\n', 'x = """\n    # stays\n"""\n'),
        ('f(\n    """stays"""\n)\n', 'f(\n    """stays"""\n)\n'),
        ('x = (\n    a\n    + """stays"""\n)\n', 'x = (\n a\n + """stays"""\n)\n'),
        (
            "if x:\n    if y:\n        z = [\n            1,\n        ]\n",
            "if x:\n if y:\n  z = [\n   1,\n  ]\n",
        ),
        ('x = r"\\d#"\ny = "\\"#"\n', 'x = r"\\d#"\ny = "\\"#"\n'),
        ("#!/usr/bin/env python3\nx = 1\n", "\nx = 1\n"),
        (
            'def f(a: int, b: str = "a: b", *c: T) -> list[int]:\n    pass\n',
            'def f(a, b = "a: b", *c):\n pass\n',
        ),
        (
            "async def f(\n    a: dict[str, Callable[[int], T]] = {},\n    **b: Any,\n) -> None:\n    pass\n",
            "async def f(\n a = {},\n **b,\n):\n pass\n",
        ),
        ("def f(a=(1, 2), b=lambda x: x): ...\n", "def f(a=(1, 2), b=lambda x: x): ...\n"),
        (
            "class A:\n    x: int = 3\n    def f(self) -> int: ...\n",
            "class A:\n x: int = 3\n def f(self): ...\n",
        ),
        ("x = {a: b}\nf(a, b)\n", "x = {a: b}\nf(a, b)\n"),
        (
            "class A:\n    def f(self):\n        self.x: d[int, T] = {}\n        self.y: T\n        z: T = 1",
            "class A:\n def f(self):\n  self.x = {}\n  self.y: T\n  z = 1",
        ),
        (
            "def f():\n    x = {\n        a: any(b for b in c if b == a)\n        for a in c\n    }\n",
            "def f():\n x = {\n  a: any(b for b in c if b == a)\n  for a in c\n }\n",
        ),
    ],
)
def test_only_docstrings_comments_types_and_margins_go(source: str, short: str) -> None:
    """Strings keep every character, whatever they look like. `short` has a space where a tab comes out."""
    shown = re.sub(r"(?m)^\t+", lambda margin: " " * len(margin[0]), minify(source))

    assert short == shown
    assert meaning(source)[0] == meaning(minify(source))[0]
