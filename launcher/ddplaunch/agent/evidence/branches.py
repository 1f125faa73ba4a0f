"""Finds the branches of a program around given lines: which `if`, loop or `except` leads there.

`SourceLines` calls it when evidence is collected, with the files that the ranks' stacks and calls name. It
looks at the parsed source alone. Nothing of the program is run or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Optional, Union

from ddplaunch.agent.contract import Branch, Frame, Function
from ddplaunch.agent.text.printable import printable

TEXT = 100
"""Characters of a condition that are kept."""
_BRANCHES = 16
"""Of each function."""
_FUNCTIONS = 16
"""Of each file."""
_CALLERS = 4
"""Lines that call a function: a rule uses them only if there is one."""
_DEPTH = 4
"""Callers of callers that are looked for."""

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ROUNDS = ("for", "while")
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))
_JUMPS = {ast.Continue: "continue", ast.Break: "break", ast.Return: "return", ast.Raise: "raise"}
_FILE_TESTS = frozenset(
    ["exists", "lexists", "isfile", "is_file", "isdir", "is_dir", "glob", "rglob", "listdir", "iterdir"]
)
_NO_FILE = "FileNotFoundError"
_PLAIN_TESTS = frozenset(
    ["get_rank", "get_world_size", "is_initialized", "len", "isinstance", "getenv", "get"]
)
"""Functions in a test that make no collective: where test and body share a line, the line does not tell."""

_Def = Union[ast.FunctionDef, ast.AsyncFunctionDef]


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
        self.calls = [*_calls(self.tree)]
        self.names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Name, ast.Attribute))
        )

    def around(self, line: int) -> Optional[tuple[str, _Def]]:
        """Return the innermost function whose body has this line; None: it is at the file's own level."""
        found = [each for each in self.defs if each[1].body[0].lineno <= line <= _end(each[1])]
        return min(found, key=lambda each: _end(each[1]) - each[1].lineno, default=None)


class _Call(NamedTuple):
    name: str
    receiver: str  # of `receiver.name()`; "": none, "?": not a name
    line: int


def find(programs: Sequence[Program], wanted: Mapping[str, Iterable[int]]) -> dict[str, list[Function]]:
    """Return by file the functions of these lines, and the functions that call them."""
    lines = {program.file: {*wanted.get(program.file, ())} for program in programs}
    callers: dict[tuple[str, str, int], list[Frame]] = {}
    for _ in range(_DEPTH):
        new = [
            (program, name, its)
            for program in programs
            for name, its in _named(program, lines[program.file])
            if (program.file, name, its.lineno) not in callers
        ]
        for program, name, its in new:
            found = _callers(programs, program, its.name)
            callers[program.file, name, its.lineno] = found
            for frame in found if len(found) == 1 else ():
                lines[frame.file].add(frame.line)
    functions = {}
    for program in programs:
        with contextlib.suppress(RecursionError, MemoryError):  # of this file alone
            of_file = _functions(program, sorted(lines[program.file]), callers)
            functions[program.file] = [*islice(of_file, _FUNCTIONS)]
    return functions


def _named(program: Program, lines: Iterable[int]) -> list[tuple[str, _Def]]:
    found = [program.around(line) for line in sorted(lines)]
    return [each for each in found if each is not None]


def _functions(
    program: Program, lines: Sequence[int], callers: Mapping[tuple[str, str, int], list[Frame]]
) -> Iterator[Function]:
    by_function: dict[Optional[tuple[str, _Def]], list[int]] = {}
    for line in lines:
        by_function.setdefault(program.around(line), []).append(line)
    for function, its in by_function.items():
        name, body = ("<module>", program.tree.body) if function is None else (function[0], function[1].body)
        if not body:
            continue
        first = 1 if function is None else function[1].lineno
        last = len(program.lines) if function is None else _end(function[1])
        found = _branches(program, body)
        around = [each for each in found if any(each.has(line) for line in its)]
        rounds = [each.lines for each in around if each.kind in _ROUNDS]
        leaves = [
            each
            for each in found
            if each.ends and each not in around
            if each.lines[1] < max(its) or any(_has_all(its, each) for its in rounds)
        ]
        loops = [each for each in found if each.kind in _ROUNDS and each not in (*around, *leaves)]
        loops = [each for each in loops if any(_has_all(each.lines, leaf) for leaf in leaves)]
        handlers = [each for each in found if each not in (*around, *leaves)]
        handlers = [each for each in handlers if any(each.protects(line) for line in its)]
        key = (program.file, name, first)
        kept = [*around, *handlers, *loops, *leaves][:_BRANCHES]
        yield Function(name, [first, last], kept, callers.get(key, []))


def _has_all(lines: Sequence[int], branch: Branch) -> bool:
    return lines[0] <= branch.line and branch.lines[1] <= lines[1]


def _branches(program: Program, body: Sequence[ast.stmt]) -> list[Branch]:
    """Return the branches of one function, without those of functions and classes in it."""
    found = []
    assigned = _assigned(body)

    def add(
        kind: str,
        line: int,
        text: str,
        arm: Sequence[ast.stmt],
        file_test: str = "",
        guarded: Sequence[ast.stmt] = (),
    ) -> None:
        ends = _JUMPS.get(type(arm[-1]), "")
        guards = [guarded[0].lineno, _end(guarded[-1])] if guarded else []
        lines = [arm[0].lineno, _end(arm[-1])]
        found.append(Branch(kind, line, _short(text), lines, ends, file_test, guards))

    for node in _statements(body):
        if isinstance(node, (ast.If, *_LOOPS)):
            test, text = _test(program, node)
            kind, file_test = text.partition(" ")[0], _file_test(test, assigned)
            if node.body[0].lineno > _end(test) or _is_plain(test):
                add(kind.replace("elif", "if"), node.lineno, text, node.body, file_test)
            if node.orelse and not _is_elif(program, node.orelse[0]):
                add("else", node.lineno, text, node.orelse, file_test)
        elif isinstance(node, _TRIES):
            for handler in node.handlers:
                kind = "" if handler.type is None else f" {ast.unparse(handler.type)}"
                file_test = _NO_FILE if kind[1:] == _NO_FILE else ""
                add("except", handler.lineno, f"except{kind}", handler.body, file_test, node.body)
        elif hasattr(node, "cases"):  # `match`, of Python 3.10
            for case in node.cases:
                add("case", case.pattern.lineno, f"case {ast.unparse(case.pattern)}", case.body)
    return found


def _test(program: Program, node: Any) -> tuple[ast.expr, str]:
    """Return what decides, and the statement as it is written, without its body: 'if rank == 0'."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter, f"for {_written(program, node.target)} in {_written(program, node.iter)}"
    kind = "while" if isinstance(node, ast.While) else "elif" if _is_elif(program, node) else "if"
    return node.test, f"{kind} {_written(program, node.test)}"


def _written(program: Program, node: ast.expr) -> str:
    """Return it as it is written; over several lines, where comments may stand, as Python would write it."""
    # Not ast.get_source_segment: it splits the whole file anew for each condition.
    if node.end_lineno != node.lineno:
        return ast.unparse(node)
    return program.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode(errors="replace")


def _is_elif(program: Program, node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and program.lines[node.lineno - 1].lstrip().startswith(b"elif")


def _statements(body: Sequence[ast.stmt]) -> Iterator[Any]:
    """Yield all statements below these, without those of other functions and of classes."""
    todo = deque(body)
    while todo:
        node = todo.popleft()
        if isinstance(node, (*_DEFS, ast.ClassDef)):
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            todo += getattr(node, part, ())
        for arm in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            todo += arm.body


def _assigned(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return the value of each name that is assigned only once in the function."""
    values: dict[str, list[ast.expr]] = {}
    for node in _statements(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: its[0] for name, its in values.items() if len(its) == 1}


def _file_test(test: ast.expr, assigned: Mapping[str, ast.expr]) -> str:
    """Return the call that looks for a file, in the test or in what the name that it tests was set to."""
    for node in ast.walk(test):
        if _asks_for_file(node):
            return _short(ast.unparse(node))
    for node in ast.walk(test):
        value = assigned.get(node.id) if isinstance(node, ast.Name) else None
        for part in ast.walk(value) if value is not None else ():
            if _asks_for_file(part):
                return _short(ast.unparse(part))
    return ""


def _asks_for_file(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _called(node)[0] in _FILE_TESTS


def _is_plain(test: ast.expr) -> bool:
    calls = [_called(node)[0] for node in ast.walk(test) if isinstance(node, ast.Call)]
    return all(name in _PLAIN_TESTS or name in _FILE_TESTS for name in calls)


def _short(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def _end(node: Any) -> int:
    return int(node.end_lineno or node.lineno)


def _definitions(tree: ast.AST, inside: str) -> Iterator[tuple[str, _Def]]:
    """Yield each function, with its name below classes and functions."""
    for node in ast.iter_child_nodes(tree):
        name = f"{inside}{node.name}" if isinstance(node, (*_DEFS, ast.ClassDef)) else ""
        if isinstance(node, _DEFS):
            yield name, node
        yield from _definitions(node, f"{name}." if name else inside)


# --- who calls a function


def _calls(tree: ast.AST) -> Iterator[_Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, receiver = _called(node)
            if name:
                yield _Call(name, receiver, node.lineno)


def _called(node: ast.Call) -> tuple[str, str]:
    """Return the name that is called, and on what: ('reduce', 'utils') of `utils.reduce(x)`."""
    function = node.func
    if isinstance(function, ast.Name):
        return function.id, ""
    if isinstance(function, ast.Attribute):
        return function.attr, function.value.id if isinstance(function.value, ast.Name) else "?"
    return "", ""


def _callers(programs: Sequence[Program], owner: Program, name: str) -> list[Frame]:
    """Return all lines that may call the function; none if any of them may mean another of the same name."""
    module = os.path.basename(owner.file).rpartition(".")[0]
    same = sum(its.name == name for program in programs for _, its in program.defs)
    if name == "forward" or name.startswith("__"):
        return []  # Python or torch calls it
    calls = sum(call.name == name for program in programs for call in program.calls)
    if sum(program.names[name] for program in programs) > calls:
        return []  # it is handed on, as to a list of hooks, and called by another name
    found = []
    for program in programs:
        for call in program.calls:
            if call.name != name:
                continue
            if same > 1 or call.receiver not in ("", "self", "cls", module):
                return []
            around = program.around(call.line)
            caller = "<module>" if around is None else around[1].name
            found.append(Frame(caller, program.file, call.line))
    return found[:_CALLERS]
