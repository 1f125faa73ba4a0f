"""What is private to a module of the agent gets a short name, and the module still does the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from ddplaunch.render.private_names import shorten

AGENT = Path(__file__).resolve().parents[3] / "launcher" / "ddplaunch" / "agent"
FILES = sorted(AGENT.rglob("*.py"))


class WithoutTypes(ast.NodeTransformer):
    """Removes annotations: Python keeps them as texts, with the names that stand in them."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        return self.generic_visit(node)


def compiled(source: str) -> list[CodeType]:
    """Return the code objects of a program, in order."""
    return [*codes(compile(WithoutTypes().visit(ast.parse(source)), "agent", "exec"))]


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a program's code objects in order."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def constants(code: CodeType) -> list[object]:
    """Return what the code holds beside other code and names of functions."""
    return [each for each in code.co_consts if not isinstance(each, CodeType | str)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(AGENT)))
def test_every_file_of_the_agent_does_the_same(path: Path) -> None:
    """Same instructions on the same lines, and each name stands for one other."""
    source = path.read_text("utf-8")
    before, after = compiled(source), compiled(shorten(source, elsewhere=()))

    names: dict[str, str] = {}
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert old.co_code == new.co_code
        assert [*old.co_lines()] == [*new.co_lines()]
        assert constants(old) == constants(new)
        assert old.co_varnames == new.co_varnames
        for one, other in zip((old.co_name, *old.co_names), (new.co_name, *new.co_names), strict=True):
            assert names.setdefault(one, other) == other
    assert len(names) == len({*names.values()})
    assert all(one == other or one.startswith("_") for one, other in names.items())


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("_LIMIT = 3\nprint(_LIMIT)\n", "_a = 3\nprint(_a)\n"),
        ("def _ranks(): pass\n_ranks()\n", "def _a(): pass\n_a()\n"),
        ("class _Rank: pass\n_a = _Rank()\n", "class _b: pass\n_a = _b()\n"),
        ("_FIRST, _LAST = 1, 2\n", "_a, _b = 1, 2\n"),
        ("_limit = 3\nprint(f'{_limit} s')\n", "_a = 3\nprint(f'{_a} s')\n"),
        (
            "def f():\n    global _limit\n    _limit = 1\n_limit = 0\n",
            "def f():\n    global _a\n    _a = 1\n_a = 0\n",
        ),
    ],
)
def test_a_private_name_is_short(source: str, short: str) -> None:
    """Functions, classes and variables, also where an f-string shows them, by names that nothing else has."""
    assert short == shorten(source)


@pytest.mark.parametrize(
    "source",
    [
        "LIMIT = 3\n",
        "__all__ = []\n__version__ = 1\n",
        "_limit = 3\nprint(module._limit)\n",
        "_limit = 3\nprint(f(_limit=_limit))\n",
        "_limit = 3\ndef f(_limit): return _limit\n",
        "_limit = 3\nprint(getattr(module, '_limit'))\n",
        "_limit = 3\nprint('see _limit')\n",
        "from module import _limit\n_limit = _limit or 3\n",
        "def f():\n    _limit = 3\n    return _limit\n",
        "class A:\n    _limit = 3\n",
    ],
)
def test_a_name_that_others_may_know_stays(source: str) -> None:
    """A public name, and one that is an attribute, an argument, a text, or not the module's own."""
    assert source == shorten(source)


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("class A:\n    def _look(self): self._look()\n", "class A:\n    def _a(self): self._a()\n"),
        ("class A:\n    def f(self): self._rank = 1\n", "class A:\n    def f(self): self._a = 1\n"),
        (
            "class A:\n    _limit = 3\n    def f(self): self._limit += 1\n",
            "class A:\n    _a = 3\n    def f(self): self._a += 1\n",
        ),
    ],
)
def test_a_member_that_no_other_module_knows_is_short(source: str, short: str) -> None:
    """Methods, and what they assign; as long as it is not known what others mention, they stay."""
    assert short == shorten(source, elsewhere={"_other"})
    assert source == shorten(source)


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def _look(self): pass\n",
        "class A:\n    def f(self): self._look = 1\n",
        "class A:\n    def f(self): os._exit(1)\n",
        "class A:\n    def f(self): return self._asdict()\n",
        "class A:\n    def __init__(self): pass\n    def _missing_(self): pass\n",
        "class A:\n    def _see(self): return getattr(self, '_see')\n",
        "class A:\n    def f(self, _see): self._see = _see\n",
        "class A:\n    def f(self): self._see = g(_see=1)\n",
    ],
    ids=[
        "a method that others mention",
        "an attribute that others mention",
        "not the class' own",
        "inherited",
        "Python's own",
        "a text",
        "an argument",
        "a keyword",
    ],
)
def test_a_member_that_others_may_know_stays(source: str) -> None:
    """A subclass in another module may replace it, or read it."""
    assert source == shorten(source, elsewhere={"_look"})
