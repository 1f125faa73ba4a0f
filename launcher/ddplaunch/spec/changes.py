"""Changes a job file's tree before its checks: by `--set KEY=VALUE`, `sweep`, and a profile's defaults. Pure.

`sweep` gives keys several values. Every combination is a job.
"""

import itertools
import math
import re
from collections.abc import Mapping as Map
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from ddplaunch.agent.job_file.rules import Path, join
from ddplaunch.spec import document, messages, schema
from ddplaunch.spec.config import NOT_DEFAULTS, Profile
from ddplaunch.spec.document import Entry, Mapping, Node, Scalar, Sequence
from ddplaunch.spec.models import job_model
from ddplaunch.spec.problems import Problem, SpecError

_STEP = re.compile(r"((?:\\.|[^\\.=\[\]])+)((?:\[\d{1,5}\])*)")
_MAX_SHOWN = 60
_PLACE = ("line", "column", "option", "file")


@dataclass(frozen=True, slots=True)
class Change:
    """One `--set`: the path of a key, which need not be in the file, and its value in YAML."""

    path: Path
    text: str

    @property
    def option(self) -> str:
        """Return the option as a message shows it: without a value that may be secret."""
        if messages.hidden(self.path) or self.path == ("env",):
            return f"--set {join(self.path)}"
        value = self.text if len(self.text) <= _MAX_SHOWN else f"{self.text[:_MAX_SHOWN]}…"
        return f"--set {join(self.path)}={value}"


def read(word: str) -> Change:
    """Return the change that a word such as `slurm.time=1h` or `command[2]=0.1` means. Raises ValueError."""
    path, equals, text = _split(word)
    if not path or equals != "=":
        raise ValueError("wanted KEY=VALUE, such as nodes=4, env.LR=0.1 or command[2]=x")
    return Change(path, text)


def read_path(word: str) -> Path:
    """Return the path that a word such as `env.LR` or `command[2]` means. Raises ValueError."""
    path, rest, _ = _split(word)
    if not path or rest:
        raise ValueError("wanted the path of a key, such as env.LR or command[2]")
    return path


def _split(word: str) -> tuple[Path, str, str]:
    """Return the path, the character after it ("" at the end) and the rest; an empty path if it is none."""
    path: list[str | int] = []
    at = 0
    while match := _STEP.match(word, at):
        path += [re.sub(r"\\(.)", r"\1", match[1]), *map(int, re.findall(r"\d+", match[2]))]
        at = match.end() + 1
        if word[match.end() : at] != ".":
            return tuple(path), word[match.end() : at], word[at:]
    return (), "", ""


def apply(root: Node, changes: Several[Change], file: str) -> tuple[Node, list[Problem]]:
    """Return the tree with all changes, made in order, and the problems of those that are impossible."""
    problems: list[Problem] = []
    for change in changes:
        try:
            root = put(root, change.path, _value(change, file))
        except SpecError as error:
            problems += [_of_option(each, change, file) for each in error.problems]
    return root, problems


def put(root: Node, path: Path, value: Node | None) -> Node:
    """Return the tree with `value` at `path` or, for None, without what is there.

    Mappings on the way are made, and so is the item after a list's last one. Raises SpecError for an item
    beyond that.
    """
    return _put(root, path, 0, value) or root


def _put(node: Node | None, path: Path, depth: int, value: Node | None) -> Node | None:
    if depth == len(path):
        return value
    step = path[depth]
    if isinstance(node, Sequence) and isinstance(step, str) and step.isdecimal():
        step = int(step)  # command.2, as in a dotted path of other programs
    place = node or value
    at: dict[str, Any] = {key: getattr(place, key) for key in _PLACE} if place else {"line": 0, "column": 0}
    if isinstance(step, int):
        items = node.items if isinstance(node, Sequence) else ()
        if step > len(items):
            raise SpecError([_beyond(path[: depth + 1], len(items))])
        below = _put(items[step] if step < len(items) else None, path, depth + 1, value)
        items = (*items[:step], *([below] if below else []), *items[step + 1 :])
        return Sequence(**at, items=items)
    entries = dict(node.entries) if isinstance(node, Mapping) else {}
    old = entries.pop(step, None)
    below = _put(old.node if old else None, path, depth + 1, value)
    if below is None:
        return Mapping(**at, entries=entries) if old else node
    entries[step] = (
        replace(old, node=below) if old else Entry(below.line, below.column, below, below.option, below.file)
    )
    return Mapping(**at, entries=entries)


def _beyond(path: Path, length: int) -> Problem:
    last = f"one of the {length} items" if length > 1 else "the only item" if length else "a list"
    hint = f"[{length}] appends one" if length else "the first item is [0]"
    return Problem(file="", path=join(path), found="no such item", wanted=last, hint=hint)


def _of_option(problem: Problem, change: Change, file: str) -> Problem:
    path = problem.path or join(change.path)
    return replace(problem, file=file, line=0, column=0, path=path, option=change.option)


def _value(change: Change, file: str) -> Node | None:
    """Return the value's node; None: remove the key. Raises SpecError for anything that is not YAML."""
    text, option = change.text, change.option
    if text == "null" and _is_known(change.path):
        return None
    of_text = schema.at(change.path).get("type") == "string"
    if not text or (of_text and text[0] not in "'\""):
        return Scalar(line=0, column=0, option=option, text=text, value=text if of_text else None)
    node, problems = document.parse(text, file)
    if problems:
        raise SpecError(problems)
    return as_wanted(node, change.path, option)


def _is_known(path: Path) -> bool:
    """Whether the job file has such a key. A mapping of names has every key."""
    parts = [schema.at(path[:depth]) for depth in range(len(path))]
    return all(
        "properties" not in part or step in part["properties"] for part, step in zip(parts, path, strict=True)
    )


def as_wanted(node: Node, path: Path, option: str = "") -> Node:
    """Return the node with its text as the value wherever the key at `path` takes text: LR=0.1, X=on.

    With `option`, the values are those of that option.
    """
    place: dict[str, Any] = {"line": 0, "column": 0, "option": option} if option else {}
    if isinstance(node, Scalar):
        if node.value is not None and schema.at(path).get("type") == "string":
            return replace(node, value=node.text, reading="", **place)
        return replace(node, **place)
    if isinstance(node, Sequence):
        items = tuple(as_wanted(item, (*path, index), option) for index, item in enumerate(node.items))
        return replace(node, items=items, **place)
    assert isinstance(node, Mapping)
    entries = {
        key: replace(entry, node=as_wanted(entry.node, (*path, key), option), **place)
        for key, entry in node.entries.items()
    }
    return replace(node, entries=entries, **place)


KEY = "sweep"
MOST = 1000
"""The most jobs in one sweep. Each is a separate submission."""

_WANTED = "a mapping of keys to lists, such as {env.LR: [0.1, 0.01]}"
_NOT_SWEPT = ("apiVersion", "name", KEY)


Point = tuple[Node, Map[str, str]]
"""One job of a sweep: its tree without the key `sweep`, and the values that are its own, as text by key."""


def points(root: Mapping, file: str) -> tuple[list[Point], list[Problem]]:
    """Return the jobs of a tree with a sweep. The last key's values change fastest.

    If the sweep is invalid, its problems are returned with one job, that of the file without the sweep.
    """
    base = put(root, (KEY,), None)
    node = root.entries[KEY].node
    if isinstance(node, Mapping) and not node.entries:
        return [(base, {})], []
    if not isinstance(node, Mapping):
        return [(base, {})], [document.problem(file, node, (KEY,), messages.found_text(node, ()), _WANTED)]
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
        path = read_path(key)
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
            document.problem(file, node, place, messages.found_text(node, path), "a list of values", hint)
        )
    if problems:
        raise SpecError(problems)
    assert isinstance(node, Sequence)
    hidden = messages.hidden(path)
    return [
        _Value(key, path, as_wanted(item, path), f"#{index}" if hidden else _text(item))
        for index, item in enumerate(node.items)
    ]


def _point(base: Node, index: int, chosen: tuple[_Value, ...]) -> Point:
    root = base
    name, found_path = document.find(base, ("name",))
    if found_path and isinstance(name, Scalar) and isinstance(name.value, str):
        named = f"{name.value}-{index}"
        root = put(root, ("name",), replace(name, text=named, value=named))
    for value in chosen:
        removed = isinstance(value.node, Scalar) and value.node.value is None
        root = put(root, value.path, None if removed else value.node)
    return root, {value.key: value.shown for value in chosen}


def _text(node: Node) -> str:
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{key}: {_text(each.node)}" for key, each in node.entries.items()) + "}"
    if isinstance(node, Sequence):
        return "[" + ", ".join(map(_text, node.items)) + "]"
    assert isinstance(node, Scalar)
    return node.text


# --- the defaults of a profile, which are put under a job file


def profile_problems(profile: Profile) -> list[Problem]:
    """Return the problems of each value that a profile gives; rules across values wait for the whole job."""
    root = profile.job
    if root is None:
        return []
    hint = "this key describes a single job, so it belongs in that job's file"
    found = [
        document.problem(profile.file, entry, (key,), "this key in a profile", "it in the job file", hint)
        for key, entry in root.entries.items()
        if key in NOT_DEFAULTS
    ]
    root = replace(root, entries={key: each for key, each in root.entries.items() if key not in NOT_DEFAULTS})
    values = {**document.data(root), **messages.STAND_INS}
    try:
        job_model().model_validate(values)
    except ValidationError as error:
        found += messages.explain(error, root, values, profile.file, with_rules=False)
    return [replace(each, path=f"profiles.{profile.name}.job.{each.path}") for each in found]


def under_job(root: Node, defaults: Mapping) -> Node:
    """Return the job file's tree with `defaults` for everything that the file leaves open.

    Mappings are joined key by key, except where only one of their keys may be given. Any other value in the
    job file, even a list, replaces the default.
    """
    return _joined(root, defaults, ())


def _joined(own: Node, default: Node, path: Path) -> Node:
    if not isinstance(own, Mapping) or not isinstance(default, Mapping):
        return own
    if path and schema.at(path).get("x-whole"):
        return own
    entries: dict[str, Entry] = dict(own.entries)
    for key, entry in default.entries.items():
        mine = entries.get(key)
        entries[key] = replace(mine, node=_joined(mine.node, entry.node, (*path, key))) if mine else entry
    return replace(own, entries=entries)
