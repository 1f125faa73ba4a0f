"""Python source with short names for what is private to its module: the agent goes into a ConfigMap.

The lines stay where they were, so a traceback from a node points at the right line, with a short name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from ddplaunch.render.short_names import short_names

_PRIVATE: Final = re.compile(r"_[A-Za-z]\w*")
_WORD: Final = re.compile(r"\b_\w+")
_SHORT_ENOUGH: Final = 3


def shorten(source: str) -> str:
    """Return `source`, which does the same.

    It renames only functions, classes and variables of the module whose name begins with one underscore.
    A name that is also a text, an attribute or an argument in the module keeps its form.
    """
    module = ast.parse(source)
    known_elsewhere = {word for node in ast.walk(module) for word in _mentioned(node)}
    taken = {*_WORD.findall(source)}
    names = (name for name in map("_{}".format, short_names()) if name not in taken)
    short = {
        name: next(names)
        for name in dict.fromkeys(_defined(module))
        if len(name) > _SHORT_ENOUGH and name not in known_elsewhere
    }
    return _WORD.sub(lambda word: short.get(word[0], word[0]), source)


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
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.arg | ast.keyword):
        return [node.arg or ""]
    if isinstance(node, ast.alias):
        return [node.name, node.asname or ""]
    return []
