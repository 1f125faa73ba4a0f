"""Makes many jobs of one file: `sweep` gives keys several values, and every combination is a job. Pure."""

import itertools
import math
from collections.abc import Mapping as Map
from dataclasses import dataclass, replace

from ddplaunch.agent.job_file.rules import Path
from ddplaunch.spec import changes, document, messages
from ddplaunch.spec.document import Entry, Mapping, Node, Scalar, Sequence
from ddplaunch.spec.problems import Problem, SpecError

KEY = "sweep"
MOST = 1000
"""The most jobs of one sweep; each is a submission of its own."""

_WANTED = "a mapping of keys to lists, such as {env.LR: [0.1, 0.01]}"
_NOT_SWEPT = ("apiVersion", "name", KEY)


Point = tuple[Node, Map[str, str]]
"""One job of a sweep: its tree without the key `sweep`, and the values that are its own, as text by key."""


def points(root: Mapping, file: str) -> tuple[list[Point], list[Problem]]:
    """Return the jobs of a tree with a sweep, the last key's values changing fastest.

    Where the sweep is none, its problems follow, and the one job is that of the file without it.
    """
    base = changes.put(root, (KEY,), None)
    node = root.entries[KEY].node
    if isinstance(node, Mapping) and not node.entries:
        return [(base, {})], []
    if not isinstance(node, Mapping):
        return [(base, {})], [document.problem(file, node, (KEY,), messages.found(node, ()), _WANTED)]
    problems: list[Problem] = []
    axes = []
    for key, entry in node.entries.items():
        try:
            axes.append(_axis(key, entry, base, file))
        except SpecError as error:
            problems += error.problems
    number = math.prod(map(len, axes))
    if number > MOST:
        hint = "every value of a key is combined with every value of the others"
        problems.append(document.problem(file, node, (KEY,), f"{number} jobs", f"at most {MOST}", hint))
    if problems:
        return [(base, {})], problems
    return [_point(base, index, chosen) for index, chosen in enumerate(itertools.product(*axes))], []


@dataclass(frozen=True, slots=True)
class _Value:
    key: str
    path: Path
    node: Node
    shown: str


def _axis(key: str, entry: Entry, base: Node, file: str) -> list[_Value]:
    """Return the values of one key. Raises SpecError."""
    place = (KEY, key)
    try:
        path = changes.read_path(key)
    except ValueError as error:
        problem = document.problem(file, entry, place, "this key", "the path of one", str(error))
        raise SpecError([problem]) from error
    there, found_path = document.find(base, path)
    problems = []
    if path[0] in _NOT_SWEPT:
        hint = "each job gets a name of its own: NAME-0, NAME-1, …" if path[0] == "name" else ""
        problems = [document.problem(file, entry, place, "this key", "another", hint)]
    elif found_path == path and there.option:
        hint = f"remove it from the command line, or write --set {KEY}=null for one job"
        problems = [document.problem(file, there, place, "the key in `sweep` as well", "it once", hint)]
    node = entry.node
    if not isinstance(node, Sequence) or not node.items:
        hint = f"write [{node.text}]" if isinstance(node, Scalar) and not messages.hidden(path) else ""
        problems.append(
            document.problem(file, node, place, messages.found(node, path), "a list of values", hint)
        )
    if problems:
        raise SpecError(problems)
    assert isinstance(node, Sequence)
    hidden = messages.hidden(path)
    return [
        _Value(key, path, changes.as_wanted(item, path), f"#{index}" if hidden else _text(item))
        for index, item in enumerate(node.items)
    ]


def _point(base: Node, index: int, chosen: tuple[_Value, ...]) -> Point:
    root = base
    name, found_path = document.find(base, ("name",))
    if found_path and isinstance(name, Scalar) and isinstance(name.value, str):
        named = f"{name.value}-{index}"
        root = changes.put(root, ("name",), replace(name, text=named, value=named))
    for value in chosen:
        removed = isinstance(value.node, Scalar) and value.node.value is None
        root = changes.put(root, value.path, None if removed else value.node)
    return root, {value.key: value.shown for value in chosen}


def _text(node: Node) -> str:
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{key}: {_text(each.node)}" for key, each in node.entries.items()) + "}"
    if isinstance(node, Sequence):
        return "[" + ", ".join(map(_text, node.items)) + "]"
    assert isinstance(node, Scalar)
    return node.text
