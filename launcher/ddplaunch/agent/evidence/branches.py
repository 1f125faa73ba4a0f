"""Finds the branches of a program around given lines: which `if`, loop or `except` leads there.

`SourceLines` calls it when evidence is collected, with the files that the ranks' stacks and calls name. It
looks at the parsed source alone. Nothing of the program is run or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Optional

from ddplaunch.agent.contract import Branch, Frame, Function
from ddplaunch.agent.evidence.assignments import Callers, assigned_before
from ddplaunch.agent.evidence.program import (
    LOOPS,
    TRIES,
    Def,
    Program,
    assigned_once,
    called,
    end_of,
    is_elif,
    short,
    statements,
    test_of,
)

_VARIABLE = re.compile(r"[A-Za-z_]\w{0,59}")
_VARIABLES = 3
"""Of the environment, for each test."""
_BRANCHES = 16
"""Of each function."""
_FUNCTIONS = 16
"""Of each file."""
_CALLERS = 4
"""Lines that call a function: a rule uses them only if there is one."""
_DEPTH = 4
"""Callers of callers that are looked for."""
_ROUNDS = ("for", "while")
_JUMPS = {ast.Continue: "continue", ast.Break: "break", ast.Return: "return", ast.Raise: "raise"}
_FILE_TESTS = frozenset(
    ["exists", "lexists", "isfile", "is_file", "isdir", "is_dir", "glob", "rglob", "listdir", "iterdir"]
)
_NO_FILE = "FileNotFoundError"
_PLAIN_TESTS = frozenset(
    ["get_rank", "get_world_size", "is_initialized", "len", "isinstance", "getenv", "get"]
)
"""Functions in a test that make no collective: where test and body share a line, the line does not tell."""


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
            of_file = _functions(programs, program, sorted(lines[program.file]), callers)
            functions[program.file] = [*islice(of_file, _FUNCTIONS)]
    return functions


def _named(program: Program, lines: Iterable[int]) -> list[tuple[str, Def]]:
    found = [program.around(line) for line in sorted(lines)]
    return [each for each in found if each is not None]


def _functions(
    programs: Sequence[Program], program: Program, lines: Sequence[int], callers: Callers
) -> Iterator[Function]:
    by_function: dict[Optional[tuple[str, Def]], list[int]] = {}
    for line in lines:
        by_function.setdefault(program.around(line), []).append(line)
    for function, its in by_function.items():
        name, body = ("<module>", program.tree.body) if function is None else (function[0], function[1].body)
        if not body:
            continue
        first = 1 if function is None else function[1].lineno
        last = len(program.lines) if function is None else end_of(function[1])
        found = _branches(program, body)
        around = [each for each in found if any(each.has(line) or _tests_at(each, line) for line in its)]
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
        handed = [each for line in its for each in assigned_before(programs, program, line, callers)]
        yield Function(name, [first, last], kept, callers.get(key, []), handed)


def _tests_at(branch: Branch, line: int) -> bool:
    """Whether it is a `while` with its test in this line, where a rank may stand that looks for something."""
    return branch.kind == "while" and branch.line == line


def _has_all(lines: Sequence[int], branch: Branch) -> bool:
    return lines[0] <= branch.line and branch.lines[1] <= lines[1]


def _branches(program: Program, body: Sequence[ast.stmt]) -> list[Branch]:
    """Return the branches of one function, without those of functions and classes in it."""
    found = []
    assigned = assigned_once(body)
    known = {**program.assigned, **assigned}

    def add(
        kind: str,
        line: int,
        text: str,
        arm: Sequence[ast.stmt],
        file_test: str = "",
        guarded: Sequence[ast.stmt] = (),
        variables: Sequence[str] = (),
    ) -> None:
        ends = _JUMPS.get(type(arm[-1]), "")
        guards = [guarded[0].lineno, end_of(guarded[-1])] if guarded else []
        lines = [arm[0].lineno, end_of(arm[-1])]
        found.append(Branch(kind, line, short(text), lines, ends, file_test, guards, [*variables]))

    for node in statements(body):
        if isinstance(node, (ast.If, *LOOPS)):
            test, text = test_of(program, node)
            kind, file_test = text.partition(" ")[0], _file_test(test, assigned)
            variables = _variables(test, known)
            apart = node.body[0].lineno > end_of(test) or _is_plain(test)
            if apart or isinstance(node, ast.While):  # whose test is in its loop as well
                add(kind.replace("elif", "if"), node.lineno, text, node.body, file_test, variables=variables)
            if node.orelse and not is_elif(program, node.orelse[0]):
                add("else", node.lineno, text, node.orelse, file_test, variables=variables)
        elif isinstance(node, TRIES):
            for handler in node.handlers:
                kind = "" if handler.type is None else f" {ast.unparse(handler.type)}"
                file_test = _NO_FILE if kind[1:] == _NO_FILE else ""
                add("except", handler.lineno, f"except{kind}", handler.body, file_test, node.body)
        elif hasattr(node, "cases"):  # `match`, of Python 3.10
            for case in node.cases:
                add("case", case.pattern.lineno, f"case {ast.unparse(case.pattern)}", case.body)
    return found


def _file_test(test: ast.expr, assigned: Mapping[str, ast.expr]) -> str:
    """Return the call that looks for a file, in the test or in what the name that it tests was set to."""
    for node in ast.walk(test):
        if _asks_for_file(node):
            return short(ast.unparse(node))
    for node in ast.walk(test):
        value = assigned.get(node.id) if isinstance(node, ast.Name) else None
        for part in ast.walk(value) if value is not None else ():
            if _asks_for_file(part):
                return short(ast.unparse(part))
    return ""


def _asks_for_file(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node)[0] in _FILE_TESTS


def _variables(test: ast.expr, assigned: Mapping[str, ast.expr]) -> list[str]:
    """Return the environment variables that a test reads, or what the names in it were set to."""
    names = (each.id for each in ast.walk(test) if isinstance(each, ast.Name))
    read = [test, *(assigned[name] for name in names if name in assigned)]
    found = (_variable(node) for each in read for node in ast.walk(each))
    return [*islice(dict.fromkeys(name for name in found if name), _VARIABLES)]


def _variable(node: ast.AST) -> str:
    """Return the variable that an expression reads: os.getenv("A"), os.environ["A"], "A" in os.environ."""
    key: Optional[ast.AST] = None
    if isinstance(node, ast.Call) and node.args:
        function = node.func
        reads = isinstance(function, ast.Attribute) and function.attr == "get" and _is_environ(function.value)
        key = node.args[0] if reads or called(node)[0] == "getenv" else None
    elif isinstance(node, ast.Subscript) and _is_environ(node.value):
        key = node.slice
    elif isinstance(node, ast.Compare) and any(map(_is_environ, node.comparators)):
        key = node.left
    name = key.value if isinstance(key, ast.Constant) else None
    return name if isinstance(name, str) and _VARIABLE.fullmatch(name) else ""


def _is_environ(node: ast.AST) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))


def _is_plain(test: ast.expr) -> bool:
    calls = [called(node)[0] for node in ast.walk(test) if isinstance(node, ast.Call)]
    return all(name in _PLAIN_TESTS or name in _FILE_TESTS for name in calls)


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
            around = program.around(call.node.lineno)
            caller = "<module>" if around is None else around[1].name
            found.append(Frame(caller, program.file, call.node.lineno))
    return found[:_CALLERS]
