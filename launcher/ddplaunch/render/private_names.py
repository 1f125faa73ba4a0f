"""Python source with short names for what is private to its module: the agent goes into a ConfigMap.

The lines stay where they were, so a traceback from a node points at the right line, with a short name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ddplaunch.render.short_names import short_names

_PRIVATE: Final = re.compile(r"_[A-Za-z]\w*")
_WORD: Final = re.compile(r"\b_\w+")
_SHORT_ENOUGH: Final = 3


def shorten(source: str, elsewhere: Collection[str] | None = None) -> str:
    """Return `source`, which does the same.

    It renames functions, classes and variables of the module whose name begins with one underscore. With
    `elsewhere`, the names that other modules mention, it renames methods and attributes as well. A name that
    is also a text or an argument in the module keeps its form.
    """
    module = ast.parse(source)
    nodes = [*ast.walk(module)]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    own = [name for name in dict.fromkeys(_defined(module)) if name not in attributes]
    if elsewhere is not None:
        own += [name for name in dict.fromkeys(_members(nodes)) if name not in elsewhere]
    known_elsewhere = {word for node in nodes for word in _mentioned(node)}
    taken = {*words(source)}
    names = (name for name in map("_{}".format, short_names()) if name not in taken)
    short = {name: next(names) for name in own if len(name) > _SHORT_ENOUGH and name not in known_elsewhere}
    return _WORD.sub(lambda word: short.get(word[0], word[0]), source)


def words(source: str) -> list[str]:
    """Return all words in it that begin with an underscore."""
    return _WORD.findall(source)


def _members(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the private names of methods, and of what they assign to `self`. Python's own end with `_`."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found = [node.attr] if isinstance(node.value, ast.Name) and node.value.id == "self" else []
        else:
            continue
        yield from (name for name in found if _PRIVATE.fullmatch(name) and not name.endswith("_"))


def _defined(module: ast.Module) -> Iterator[str]:
    """Yield the private names that the module's own statements bind."""
    for node in module.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            targets = [ast.Name(node.name)]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for name in (each for target in targets for each in ast.walk(target)):
            if isinstance(name, ast.Name) and _PRIVATE.fullmatch(name.id):
                yield name.id


def _mentioned(node: ast.AST) -> list[str]:
    """Return the words in a node by which other code may know a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _WORD.findall(node.value)
    if isinstance(node, ast.arg | ast.keyword):
        return [node.arg or ""]
    if isinstance(node, ast.alias):
        return [node.name, node.asname or ""]
    return []
