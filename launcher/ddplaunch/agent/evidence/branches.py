"""Finds the branches of a program around given lines: which `if`, loop or `except` leads there; and where
the variables get their values that such a line hands on.

`SourceLines` calls it when evidence is collected, with the files that the ranks' stacks and calls name. It
looks at the parsed source alone. Nothing of the program is run or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Optional, Union

from ddplaunch.agent.contract import Assignment, Branch, Frame, Function
from ddplaunch.agent.text.printable import printable

TEXT = 100
"""Characters of a condition that are kept."""
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
_ASSIGNMENTS = 3
"""Of what one line hands on: of more, none stands out."""

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

_SENDS = re.compile(r"reduce|gather|broadcast|scatter|all_to_all|send|recv")
"""Functions whose tensors must fit those of other ranks."""
_OF_TWO = re.compile(r"gather|scatter|all_to_all")
"""Those that take two. Most take what is received first, and `gather` and `scatter` what is sent."""
_COUNTS = frozenset(["range", "enumerate", "count"])
"""A loop over these gives no tensor a shape."""
_NO_TENSORS = frozenset(["group", "op", "async_op", "src", "dst", "group_src", "group_dst", "tag"])

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
        self.assigned = _assigned(self.tree.body)
        self.calls = [*_calls(self.tree)]
        self.calls_at: dict[int, list[ast.Call]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                self.calls_at.setdefault(node.lineno, []).append(node)
        self.names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Name, ast.Attribute))
        )

    def around(self, line: int) -> Optional[tuple[str, _Def]]:
        """Return the innermost function whose body has this line; None: it is at the file's own level."""
        found = [each for each in self.defs if each[1].body[0].lineno <= line <= _end(each[1])]
        return min(found, key=lambda each: _end(each[1]) - each[1].lineno, default=None)


_Callers = Mapping[tuple[str, str, int], list[Frame]]
"""By file, name and first line of a function: the lines that call it."""


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
            of_file = _functions(programs, program, sorted(lines[program.file]), callers)
            functions[program.file] = [*islice(of_file, _FUNCTIONS)]
    return functions


def _named(program: Program, lines: Iterable[int]) -> list[tuple[str, _Def]]:
    found = [program.around(line) for line in sorted(lines)]
    return [each for each in found if each is not None]


def _functions(
    programs: Sequence[Program], program: Program, lines: Sequence[int], callers: _Callers
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
        handed = [
            Assignment(line, *each)
            for line in its
            for each in _assigned_before(programs, program, line, callers)
        ]
        yield Function(name, [first, last], kept, callers.get(key, []), handed)


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
        variables: Sequence[str] = (),
    ) -> None:
        ends = _JUMPS.get(type(arm[-1]), "")
        guards = [guarded[0].lineno, _end(guarded[-1])] if guarded else []
        lines = [arm[0].lineno, _end(arm[-1])]
        found.append(Branch(kind, line, _short(text), lines, ends, file_test, guards, [*variables]))

    for node in _statements(body):
        if isinstance(node, (ast.If, *_LOOPS)):
            test, text = _test(program, node)
            kind, file_test = text.partition(" ")[0], _file_test(test, assigned)
            variables = _variables(test, {**program.assigned, **assigned})
            if node.body[0].lineno > _end(test) or _is_plain(test):
                add(kind.replace("elif", "if"), node.lineno, text, node.body, file_test, variables=variables)
            if node.orelse and not _is_elif(program, node.orelse[0]):
                add("else", node.lineno, text, node.orelse, file_test, variables=variables)
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


def _written(program: Program, node: Union[ast.expr, ast.stmt]) -> str:
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
        key = node.args[0] if reads or _called(node)[0] == "getenv" else None
    elif isinstance(node, ast.Subscript) and _is_environ(node.value):
        key = node.slice
    elif isinstance(node, ast.Compare) and any(map(_is_environ, node.comparators)):
        key = node.left
    name = key.value if isinstance(key, ast.Constant) else None
    return name if isinstance(name, str) and _VARIABLE.fullmatch(name) else ""


def _is_environ(node: ast.AST) -> bool:
    return "environ" in (getattr(node, "attr", ""), getattr(node, "id", ""))


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


# --- what a line hands on


class _Set(NamedTuple):
    """A statement that sets a name. Up to `reach`, the end of its block, it has run for certain."""

    node: ast.stmt
    reach: int


def _assigned_before(
    programs: Sequence[Program], program: Program, line: int, callers: _Callers
) -> list[tuple[str, str, int, str]]:
    """Return (name, file, line, text) of what sets the variables that a line sends, the nearest first; then
    of what sets the variables in these, as far as there is room.

    A parameter is set where one line alone calls the function.
    """
    names = [name for call in program.calls_at.get(line, ()) for name in _names(_tensors(call))]
    found: list[tuple[str, str, int, str]] = []
    todo = deque((program, line, name) for name in names)
    seen = {*todo}
    while todo:
        owner, at, name = todo.popleft()
        places = _settings(programs, owner, at, name, callers)
        if len(found) + len(places) > _ASSIGNMENTS:
            break  # all of a variable or none: a reader takes what is shown for all there is
        for its, number, text, values in places:
            found.append((name, its.file, number, text))
            inner = [(its, number, each) for each in _names(values)]
            todo += [each for each in inner if each not in seen]
            seen |= {*inner}
    return found


def _settings(
    programs: Sequence[Program], program: Program, line: int, name: str, callers: _Callers
) -> list[tuple[Program, int, str, list[ast.expr]]]:
    """Return what may have set a name last before a line: its file, line, text, and what it sets it to."""
    around = program.around(line)
    body = program.tree.body if around is None else around[1].body
    nodes, is_certain = _set_last(body, name, line)
    found = [
        (program, each.lineno, _short(_header(program, each)), _values(each))
        for each in nodes
        if not any(isinstance(value, ast.Call) and _called(value)[0] in _COUNTS for value in _values(each))
    ]
    if around is None or is_certain:
        return found
    its_callers = callers.get((program.file, around[0], around[1].lineno), [])
    for frame in its_callers if len(its_callers) == 1 else ():
        caller = next(each for each in programs if each.file == frame.file)
        for call, argument in _arguments(caller, frame.line, around[1], name):
            found.append((caller, frame.line, _short(_written(caller, call)), [argument]))
    return found


def _tensors(call: ast.Call) -> list[ast.expr]:
    """Return what may be tensors among the arguments of a call; none where it sends none."""
    name, _ = _called(call)
    if not _SENDS.search(name):
        return []
    by_name = [each.value for each in call.keywords if each.arg and each.arg not in _NO_TENSORS]
    first = call.args[: 2 if _OF_TWO.search(name) else 1]
    return [*(first if name.startswith(("gather", "scatter")) else first[::-1]), *by_name]


def _header(program: Program, node: ast.stmt) -> str:
    if isinstance(node, _LOOPS):
        return _test(program, node)[1]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return f"with {', '.join(ast.unparse(item) for item in node.items)}"
    return _written(program, node)


def _set_last(body: Sequence[ast.stmt], name: str, line: int) -> tuple[list[ast.stmt], bool]:
    """Return the statements of a function that may have set a name last before a line, and whether there is
    one that has run for certain.
    """
    sets = [each for each in _sets(body, name) if each.node.lineno < line]
    found, certain = [], None
    for each in sorted(sets, key=lambda its: -its.node.lineno):
        found.append(each.node)
        if each.reach >= line:
            certain = each.node
            break
    loops = [each for each in _statements(body) if isinstance(each, _LOOPS)]
    loops = [each for each in loops if each.lineno < line <= _end(each)]
    loops = [each for each in loops if certain is None or each.lineno > certain.lineno]
    later = [each.node for each in _sets(body, name) if each.node.lineno >= line]
    found += [each for each in later if any(each.lineno <= _end(loop) for loop in loops)]
    return found, certain is not None


def _sets(body: Sequence[ast.stmt], name: str) -> Iterator[_Set]:
    last = _end(body[-1])
    for node in body:
        if isinstance(node, (*_DEFS, ast.ClassDef)):
            continue
        if name in _targets(node):
            yield _Set(node, last)
        arms = [getattr(node, part, ()) for part in ("body", "orelse", "finalbody")]
        arms += [arm.body for arm in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
        for arm in arms:
            if arm:
                yield from _sets(arm, name)


def _targets(node: ast.stmt) -> set[str]:
    """Return the names that a statement sets itself. `x += y` sets none: it leaves the shape as it is."""
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets += node.targets
    elif isinstance(node, (ast.AnnAssign, ast.For, ast.AsyncFor)):
        targets.append(node.target)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        targets += [item.optional_vars for item in node.items if item.optional_vars is not None]
    inner = [each for target in targets for each in ast.walk(target)]
    return {each.id for each in inner if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _values(node: ast.stmt) -> list[ast.expr]:
    """Return what a statement sets its names to."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in node.items]
    value = getattr(node, "iter", None) or getattr(node, "value", None)
    return [] if value is None else [value]


def _names(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names in expressions, without those of functions that they call."""
    inner = [each for node in nodes for each in ast.walk(node)]
    called = {id(each.func) for each in inner if isinstance(each, ast.Call)}
    names = [each.id for each in inner if isinstance(each, ast.Name) and id(each) not in called]
    return [*dict.fromkeys(names)]


def _arguments(
    caller: Program, line: int, function: _Def, parameter: str
) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield each call of the function on this line, with what it gives for the parameter."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for call in caller.calls_at.get(line, ()):
        name, receiver = _called(call)
        if name != function.name or any(isinstance(each, ast.Starred) for each in call.args):
            continue
        given = dict(zip(names[receiver in ("self", "cls") :], call.args))
        given.update({each.arg: each.value for each in call.keywords if each.arg})
        if parameter in given:
            yield call, given[parameter]
