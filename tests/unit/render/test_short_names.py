"""The variables of the agent's functions get short names, and its functions still do the same."""

from __future__ import annotations

import symtable
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from ddplaunch.render.short_names import shorten

AGENT = Path(__file__).resolve().parents[3] / "launcher" / "ddplaunch" / "agent"
FILES = sorted(AGENT.rglob("*.py"))


def steps(code: CodeType) -> Iterator[object]:
    """Yield what a program does, in order: of names of its own only which of them is the same."""
    cells = {*code.co_cellvars, *code.co_freevars}
    yield code.co_name, code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags
    yield code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    yield len(code.co_varnames), len(cells), [*code.co_lines()] if len(cells) < 2 else ()
    yield (
        code.co_code if len(cells) < 2 else len(code.co_code)
    )  # cells are numbered by the order of their names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from steps(constant)
        else:
            yield constant


def shared(table: symtable.SymbolTable) -> Iterator[tuple[str, int, int]]:
    """Yield for each scope how many variables it takes from outside: of functions, and of the module."""
    names = table.get_symbols()
    yield table.get_name(), sum(each.is_free() for each in names), sum(each.is_global() for each in names)
    for child in table.get_children():
        yield from shared(child)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(AGENT)))
def test_every_file_of_the_agent_does_the_same(path: Path) -> None:
    """Same instructions on the same lines, same arguments, same variables shared by functions."""
    source = path.read_text("utf-8")
    short = shorten(source)

    assert [*steps(compile(source, "agent", "exec"))] == [*steps(compile(short, "agent", "exec"))]
    assert [*shared(symtable.symtable(source, "agent", "exec"))] == [
        *shared(symtable.symtable(short, "agent", "exec"))
    ]


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("def f(node):\n    rank = node\n    return rank\n", "def f(node):\n    a = node\n    return a\n"),
        ("def f(a):\n    rank = a\n    return rank + b\n", "def f(a):\n    c = a\n    return c + b\n"),
        ("rank = 1\nclass A:\n    rank = 2\n", "rank = 1\nclass A:\n    rank = 2\n"),
        (
            "def f(each):\n    rank = 1\n    return lambda node: rank + g(rank=node)\n",
            "def f(each):\n    a = 1\n    return lambda node: a + g(rank=node)\n",
        ),
        ("x = [rank for rank in rank]\n", "x = [a for a in rank]\n"),
        (
            "def f():\n    if any((found := each) for each in g()):\n        return found\n",
            "def f():\n    if any((a := b) for b in g()):\n        return a\n",
        ),
        ("def f():\n    rank = 1\n    return f'{rank}'\n", "def f():\n    rank = 1\n    return f'{rank}'\n"),
        (
            "def f():\n    rank = 1\n    def g():\n        nonlocal rank\n        rank = 2\n",
            "def f():\n    rank = 1\n    def g():\n        nonlocal rank\n        rank = 2\n",
        ),
        (
            "def f():\n    global rank\n    rank = 1\n",
            "def f():\n    global rank\n    rank = 1\n",
        ),
        (
            "def f():\n    import rank\n    try: pass\n    except E as node: return rank, node\n",
            "def f():\n    import rank\n    try: pass\n    except E as node: return rank, node\n",
        ),
        ("def f():\n    rank = 1\n    return locals()\n", "def f():\n    rank = 1\n    return locals()\n"),
        (
            "def f():\n    rank = 1\n    class A:\n        rank = 2\n    return rank\n",
            "def f():\n    a = 1\n    class A:\n        rank = 2\n    return a\n",
        ),
        ("def f():\n    ü, rank = 'ü', 1\n", "def f():\n    a, b = 'ü', 1\n"),
    ],
)
def test_only_what_nobody_else_can_name_is_shortened(source: str, short: str) -> None:
    """Not an argument, a global, a field, an import, nor what an f-string shows or a callback sets."""
    assert short == shorten(source)
