"""One parsed file of a rank's program: its functions, its calls, and the text of its statements.

`branches` and `assignments` look into it. Nothing of the program is run or imported.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional, Union

from ddplaunch.agent.text.printable import printable

TEXT = 100
"""Characters of a condition that are kept."""

LOOPS = (ast.For, ast.AsyncFor, ast.While)
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
Def = Union[ast.FunctionDef, ast.AsyncFunctionDef]


class Program:
    """One parsed file."""

    def __init__(self, file: str, source: str) -> None:
        """Raise SyntaxError or ValueError for what is no Python, RecursionError for what nests too deep."""
        self.file = file
        self.lines = source.encode().splitlines()  # of bytes: as Python counts lines, and columns in them
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # what Python thinks of the program's escapes is the program's affair
            self.tree = ast.parse(source)
        self.defs = [*_definitions(self.tree, "")]
        self.assigned = assigned_once(self.tree.body)
        self.calls = [*_calls(self.tree)]
        self.names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Name, ast.Attribute))
        )

    def around(self, line: int) -> Optional[tuple[str, Def]]:
        """Return the innermost function whose body has this line; None: it is at the file's own level."""
        found = [each for each in self.defs if each[1].body[0].lineno <= line <= end_of(each[1])]
        return min(found, key=lambda each: end_of(each[1]) - each[1].lineno, default=None)

    def calls_at(self, line: int) -> list[Call]:
        """Return the calls that begin on a line, and whose function has a name."""
        return [call for call in self.calls if call.node.lineno == line]


class Call(NamedTuple):
    name: str
    receiver: str  # of `receiver.name()`; "": none, "?": not a name
    node: ast.Call


def _calls(tree: ast.AST) -> Iterator[Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, receiver = called(node)
            if name:
                yield Call(name, receiver, node)


def called(node: ast.Call) -> tuple[str, str]:
    """Return the name that is called, and on what: ('reduce', 'utils') of `utils.reduce(x)`."""
    function = node.func
    if isinstance(function, ast.Name):
        return function.id, ""
    if isinstance(function, ast.Attribute):
        return function.attr, function.value.id if isinstance(function.value, ast.Name) else "?"
    return "", ""


def _definitions(tree: ast.AST, inside: str) -> Iterator[tuple[str, Def]]:
    """Yield each function, with its name below classes and functions."""
    for node in ast.iter_child_nodes(tree):
        name = f"{inside}{node.name}" if isinstance(node, (*DEFS, ast.ClassDef)) else ""
        if isinstance(node, DEFS):
            yield name, node
        yield from _definitions(node, f"{name}." if name else inside)


def test_of(program: Program, node: Any) -> tuple[ast.expr, str]:
    """Return what decides, and the statement as it is written, without its body: 'if rank == 0'."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter, f"for {written(program, node.target)} in {written(program, node.iter)}"
    kind = "while" if isinstance(node, ast.While) else "elif" if is_elif(program, node) else "if"
    return node.test, f"{kind} {written(program, node.test)}"


def written(program: Program, node: Union[ast.expr, ast.stmt]) -> str:
    """Return it as it is written; over several lines, where comments may stand, as Python would write it."""
    # Not ast.get_source_segment: it splits the whole file anew for each condition.
    if node.end_lineno != node.lineno:
        return ast.unparse(node)
    return program.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode(errors="replace")


def is_elif(program: Program, node: ast.stmt) -> bool:
    """Whether it is written as `elif`, and not as an `if` in an `else`."""
    return isinstance(node, ast.If) and program.lines[node.lineno - 1].lstrip().startswith(b"elif")


def statements(body: Sequence[ast.stmt]) -> Iterator[Any]:
    """Yield all statements below these, without those of other functions and of classes."""
    todo = deque(body)
    while todo:
        node = todo.popleft()
        if isinstance(node, (*DEFS, ast.ClassDef)):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            todo += getattr(node, part, ())
        for arm in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            todo += arm.body


def assigned_once(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return the value of each name that is assigned only once in the function."""
    values: dict[str, list[ast.expr]] = {}
    for node in statements(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: its[0] for name, its in values.items() if len(its) == 1}


def short(text: str) -> str:
    """Return a text on one line, cut to `TEXT` characters."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def end_of(node: Any) -> int:
    """Return the last line of a statement or an expression."""
    return int(node.end_lineno or node.lineno)
