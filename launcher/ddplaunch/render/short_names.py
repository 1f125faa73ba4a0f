"""Python source with short names for the variables of its functions: the agent goes into a ConfigMap.

Only names that nobody else can know of are changed. Arguments keep theirs, for callers may write them, and so
does what an f-string shows: before Python 3.12 nobody says where in the string it stands.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SEES_NAMES: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})


def shorten(source: str) -> str:
    """`source`, which says the same to Python, with all lines where they were."""
    names = _Names()
    names.visit(ast.parse(source))
    lines = [line.encode() for line in source.split("\n")]
    for node, short in reversed(names.shortened()):  # from the right, so that columns before it stay true
        line, start = lines[node.lineno - 1], node.col_offset
        lines[node.lineno - 1] = line[:start] + short.encode() + line[start + len(node.id.encode()) :]
    return b"\n".join(lines).decode()


@dataclass(eq=False)
class _Scope:
    kind: str  # module, class, function or comprehension
    outer: _Scope | None = None
    bound: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)  # every name in it, and in what it contains

    def owner(self, name: str) -> _Scope | None:
        """Return the scope whose variable `name` is here; None: it is Python's own."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope.kind != "class" or scope is self):
                return scope
            scope = scope.outer
        return None

    def outermost(self) -> _Scope:
        """Return the outermost function around, or the scope itself."""
        found, scope = self, self.outer
        while scope is not None:
            found = scope if scope.kind in ("function", "comprehension") else found
            scope = scope.outer
        return found


class _Names(ast.NodeVisitor):
    """Every place where a name stands, and the scope that it stands in."""

    def __init__(self) -> None:
        self._scope = _Scope("module")
        self._places: list[tuple[_Scope, ast.Name]] = []
        self._kept: set[str] = set()  # in all scopes
        self._in_text: list[tuple[_Scope, str]] = []
        self._texts = 0

    def shortened(self) -> list[tuple[ast.Name, str]]:
        """Return each place of a name that can be changed, in the order of the source, and its short name."""
        if self._kept & _SEES_NAMES:
            return []
        for scope, name in self._in_text:
            if (owner := scope.owner(name)) is not None:
                owner.kept.add(name)
        short: dict[tuple[_Scope, str], str] = {}
        places = []
        for scope, node in sorted(self._places, key=lambda place: (place[1].lineno, place[1].col_offset)):
            owner = scope.owner(node.id)
            if owner is None or owner.kind in ("module", "class") or node.id in owner.kept | self._kept:
                continue
            if (owner, node.id) not in short:
                taken = owner.outermost().taken
                short[owner, node.id] = next(name for name in short_names() if name not in taken)
                taken.add(short[owner, node.id])
            places.append((node, short[owner, node.id]))
        return places

    # --- names, and what binds them

    def visit_Name(self, node: ast.Name) -> None:
        self._take(node.id)
        if node.id in _SEES_NAMES:
            self._kept.add(node.id)
        if not isinstance(node.ctx, ast.Load):
            self._scope.bound.add(node.id)
        self._places.append((self._scope, node))
        if self._texts:
            self._in_text.append((self._scope, node.id))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        inside = self._scope
        while self._scope.kind == "comprehension" and self._scope.outer is not None:
            self._scope = self._scope.outer
        self.visit(node.target)
        self._scope = inside
        self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._texts += 1
        self.generic_visit(node)
        self._texts -= 1

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self._kept |= set(node.names)

    visit_Nonlocal = visit_Global  # noqa: N815 - as ast calls them

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._keep(node.name or "")
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self._keep((node.asname or node.name).partition(".")[0])

    # --- scopes

    def _visit_function(self, node: _Function) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        around = [*arguments.defaults, *arguments.kw_defaults, *(one.annotation for one in every)]
        if not isinstance(node, ast.Lambda):
            self._keep(node.name)
            around += [*node.decorator_list, node.returns]
        self._visit_all(around)
        self._scope = _Scope("function", self._scope)
        for one in every:
            self._keep(one.arg)
        self._visit_all([node.body] if isinstance(node, ast.Lambda) else node.body)
        self._leave()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function  # noqa: N815 - as ast calls them

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._keep(node.name)
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._scope = _Scope("class", self._scope)
        self._visit_all(node.body)
        self._leave()

    def _visit_comprehension(self, node: _Comprehension) -> None:
        self.visit(node.generators[0].iter)  # outside, as Python does
        self._scope = _Scope("comprehension", self._scope)
        for number, part in enumerate(node.generators):
            self._visit_all([part.target, part.iter if number else None, *part.ifs])
        self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self._leave()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815 - as ast calls them

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _leave(self) -> None:
        assert self._scope.outer is not None
        self._scope = self._scope.outer

    def _keep(self, name: str) -> None:
        self._scope.bound.add(name)
        self._scope.kept.add(name)
        self._take(name)

    def _take(self, name: str) -> None:
        self._scope.outermost().taken.add(name)


def short_names() -> Iterator[str]:
    """Yield 'a', 'b', … 'aa', … without Python's keywords."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            name = "".join(letters)
            if not keyword.iskeyword(name):
                yield name
