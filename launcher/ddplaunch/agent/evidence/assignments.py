"""Finds the assignments that may have set the variables that a line sends to other ranks.

`branches.find` calls it for each line of a rank. It looks at the parsed source alone, so it cannot know what
a statement does to a tensor in place. A parameter is followed only to the one line that calls its function.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Assignment, Frame
from ddplaunch.agent.evidence.program import (
    DEFS,
    LOOPS,
    Def,
    Program,
    called,
    end_of,
    short,
    statements,
    test_of,
    written,
)

_ASSIGNMENTS = 3
"""Of what one line hands on: of more, none stands out."""
_SENDS = re.compile(r"reduce|gather|broadcast|scatter|all_to_all|send|recv")
"""Functions whose tensors must fit those of other ranks."""
_OF_TWO = re.compile(r"gather|scatter|all_to_all")
"""Those that take two. Most take what is received first, and `gather` and `scatter` what is sent."""
_COUNTS = frozenset(["range", "enumerate", "count"])
"""A loop over these gives no tensor a shape."""
_NO_TENSORS = frozenset(["group", "op", "async_op", "src", "dst", "group_src", "group_dst", "tag"])

_ROOTS = ("src", "dst", "group_src", "group_dst")
_ROOT_AT = {
    "broadcast": 1,
    "broadcast_object_list": 1,
    "reduce": 1,
    "gather": 2,
    "gather_object": 2,
    "scatter": 2,
    "scatter_object_list": 2,
}
"""The place of the root among the arguments, where it has no name (torch/distributed/distributed_c10d.py)."""

Callers = Mapping[tuple[str, str, int], list[Frame]]
"""By file, name and first line of a function: the lines that call it."""


class _Set(NamedTuple):
    """A statement that sets a name. Up to `reach`, the end of its block, it has run for certain."""

    node: ast.stmt
    reach: int


def assigned_before(
    programs: Sequence[Program], program: Program, line: int, callers: Callers
) -> list[Assignment]:
    """Return what sets the variables that a line sends, the nearest first; then what sets the variables in
    these, as far as there is room. After that, the same for the root that the line names.

    A parameter is set where one line alone calls the function.
    """
    calls = [call.node for call in program.calls_at(line)]
    tensors = _names(tensor for call in calls for tensor in _tensors(call))
    roots = _names(root for call in calls for root in _roots(call))
    return [
        *_followed(programs, program, line, tensors, callers, root=False),
        *_followed(programs, program, line, roots, callers, root=True),
    ]


def _followed(
    programs: Sequence[Program],
    program: Program,
    line: int,
    names: Sequence[str],
    callers: Callers,
    *,
    root: bool,
) -> list[Assignment]:
    found: list[Assignment] = []
    todo = deque((program, line, name, 0) for name in dict.fromkeys(names))
    seen = {each[:3] for each in todo}
    while todo:
        owner, at, name, back = todo.popleft()
        places = _settings(programs, owner, at, name, callers, root)
        if len(found) + len(places) > _ASSIGNMENTS:
            break  # all of a variable or none: a reader takes what is shown for all there is
        for its, number, text, values in places:
            found.append(Assignment(line, name, its.file, number, text, back, root))
            inner = [(its, number, each) for each in _names(values)]
            todo += [(*each, back + 1) for each in inner if each not in seen]
            seen |= {*inner}
    return found


def _settings(
    programs: Sequence[Program], program: Program, line: int, name: str, callers: Callers, root: bool
) -> list[tuple[Program, int, str, list[ast.expr]]]:
    """Return what may have set a name last before a line: its file, line, text, and what it sets it to."""
    around = program.around(line)
    body = program.tree.body if around is None else around[1].body
    if root and any(_adds_to(each, name) for each in statements(body)):
        return []  # it leaves a shape as it is, but not a number
    nodes, is_certain = _set_last(body, name, line)
    found = [
        (program, each.lineno, short(_header(program, each)), _values(each))
        for each in nodes
        if root or not any(isinstance(it, ast.Call) and called(it)[0] in _COUNTS for it in _values(each))
    ]
    if around is None or is_certain:
        return found
    its_callers = callers.get((program.file, around[0], around[1].lineno), [])
    for frame in its_callers if len(its_callers) == 1 else ():
        caller = next(each for each in programs if each.file == frame.file)
        for call, argument in _arguments(caller, frame.line, around[1], name):
            found.append((caller, frame.line, short(written(caller, call)), [argument]))
    return found


def _tensors(call: ast.Call) -> list[ast.expr]:
    """Return what may be tensors among the arguments of a call; none where it sends none."""
    name, _ = called(call)
    if not _SENDS.search(name):
        return []
    by_name = [each.value for each in call.keywords if each.arg and each.arg not in _NO_TENSORS]
    first = call.args[: 2 if _OF_TWO.search(name) else 1]
    return [*(first if name.startswith(("gather", "scatter")) else first[::-1]), *by_name]


def _roots(call: ast.Call) -> list[ast.expr]:
    """Return the argument by which a call names its root; none if it names none."""
    given = [each.value for each in call.keywords if each.arg in _ROOTS]
    place = _ROOT_AT.get(called(call)[0], len(call.args))
    return given or call.args[place : place + 1]


def _adds_to(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name


def _header(program: Program, node: ast.stmt) -> str:
    if isinstance(node, LOOPS):
        return test_of(program, node)[1]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return f"with {', '.join(ast.unparse(item) for item in node.items)}"
    return written(program, node)


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
    loops = [each for each in statements(body) if isinstance(each, LOOPS)]
    loops = [each for each in loops if each.lineno < line <= end_of(each)]
    loops = [each for each in loops if certain is None or each.lineno > certain.lineno]
    later = [each.node for each in _sets(body, name) if each.node.lineno >= line]
    found += [each for each in later if any(each.lineno <= end_of(loop) for loop in loops)]
    return found, certain is not None


def _sets(body: Sequence[ast.stmt], name: str) -> Iterator[_Set]:
    last = end_of(body[-1])
    for node in body:
        if isinstance(node, (*DEFS, ast.ClassDef)):
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
    caller: Program, line: int, function: Def, parameter: str
) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield each call of the function on this line, with what it gives for the parameter."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for name, receiver, call in caller.calls_at(line):
        if name != function.name or any(isinstance(each, ast.Starred) for each in call.args):
            continue
        given = dict(zip(names[receiver in ("self", "cls") :], call.args))
        given.update({each.arg: each.value for each in call.keywords if each.arg})
        if parameter in given:
            yield call, given[parameter]
