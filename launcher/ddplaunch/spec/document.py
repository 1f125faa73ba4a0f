"""Parses YAML text into a tree of nodes with line and column, and explains the parser's errors. Pure.

The tree is built from the parser's events, because PyYAML's own composer accepts duplicate keys, follows
aliases without a limit, and recurses as deep as the text does. The tree keeps the text of a value beside what
YAML 1.1 reads (`NO`, `010`, `1:30`), so that an error can show both. No message about syntax repeats the
file's text, because a line that cannot be parsed may hold a secret.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from ddplaunch.agent.job_file.rules import Path, join
from ddplaunch.spec.problems import Problem, SpecError

START_HINT = "`ddplaunch init` writes one for you to start from"
SPLIT_HINT = "put each job into its own file; `---` begins a new document"

_INDENT = "indent the keys of a mapping equally, two spaces more than the key above them"
_CLOSE = "it begins here and is never closed"

_TAG = ("a YAML tag", "a plain value", "text that begins with ! needs quotes")

# The parser's message -> found, wanted, hint.
_WORDS = {
    "mapping values are not allowed in this context": (
        "a second ': ' in one line, or a line that is indented too far",
        "one key and its value",
        "quote a value that contains ': '",
    ),
    "could not find expected ':'": ("a line without ':'", "a key, then ': ', then its value", _INDENT),
    "found unexpected end of stream": ("the end of the file inside quotes", "a closing quote", _CLOSE),
    "did not find expected '-' indicator": ("no '- '", "another item of the list above", _INDENT),
    "did not find expected key": ("no key", "another key of the mapping above", _INDENT),
    "did not find expected ',' or ']'": ("no ']'", "a list that is closed", _CLOSE),
    "did not find expected ',' or '}'": ("no '}'", "a mapping that is closed", _CLOSE),
    "did not find expected <document start>": (
        "something next to the job",
        "one mapping that begins in the first column",
        _INDENT,
    ),
    "found unknown escape character": (
        "a backslash before a character that cannot be escaped",
        "a known escape, or single quotes",
        "inside '…' a backslash is just a backslash",
    ),
    "did not find expected node content": (
        "no value, or a bracket out of place",
        "a value",
        "quote a value that begins with } or ] or a comma",
    ),
    "found incompatible YAML document": ("another version of YAML", "YAML 1.1", "remove the %YAML line"),
    "found invalid Unicode character escape code": (
        "an escape that is not a character",
        "the character itself",
        "YAML does not have JSON's pairs of escapes (\\ud83d\\ude00)",
    ),
    "found unknown directive name": ("an unknown % line", "a job file", "remove the line that begins with %"),
    "found undefined tag handle": _TAG,
    "did not find expected tag URI": _TAG,
    "did not find expected alphabetic or numeric character": (
        "& or * before something that is not a name",
        "the name of an anchor, or text in quotes",
        "quote a value that begins with & or *",
    ),
}

_TABS = ("a tab", "spaces", "YAML does not allow tabs as indentation")


def explain(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """Return the problem for *error*, at the line that has to be changed."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _unreadable(error, text, file)
    complaint = str(error.problem or error.context or "this cannot be read")
    found, wanted, hint = _words(complaint, error, text)
    # The parser notices only at the end of the file that something is never closed; the user must look where
    # it begins.
    begins = hint == _CLOSE or complaint == "could not find expected ':'"
    mark = error.context_mark if begins and error.context_mark else error.problem_mark
    mark = mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return Problem(file=file, line=line, column=column, found=found, wanted=wanted, hint=hint)


def _words(complaint: str, error: yaml.MarkedYAMLError, text: str) -> tuple[str, str, str]:
    if "tab character" in complaint:
        return _TABS
    if complaint == "found character that cannot start any token" and error.problem_mark:
        char = _character(text, error.problem_mark.line, error.problem_mark.column)
        if char == "\t":
            return _TABS
        hint = "quote a value that begins with one of @ ` % & * ! | > { } [ ] , # ?"
        return (
            f"a value that begins with {char}" if char else "a character out of place",
            "text in quotes",
            hint,
        )
    return _WORDS.get(complaint, (f"text that is not YAML ({complaint})", "YAML", _INDENT))


def _character(text: str, line: int, column: int) -> str:
    lines = text.splitlines()
    return lines[line][column : column + 1] if line < len(lines) else ""


def _unreadable(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """Return the problem of a character that YAML forbids. The reader gives no marks for it."""
    position = getattr(error, "position", 0)
    before = text[:position] if isinstance(position, int) else ""
    character = getattr(error, "character", 0)
    code = character if isinstance(character, int) else ord(str(character)[:1] or "\0")
    return Problem(
        file=file,
        line=before.count("\n") + 1,
        column=len(before) - (before.rfind("\n") + 1) + 1,
        found=f"the control character U+{code:04X}",
        wanted="text",
        hint="remove it, or write it as an escape inside double quotes",
    )


MAX_NODES = 20_000
"""The most values once all aliases are followed. A job file with every key has some hundreds."""

MAX_DEPTH = 50

_STR = "tag:yaml.org,2002:str"
_PLAIN_TAGS = {None, "!", _STR, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9]{1,20}\.[0-9]{0,20}([eE][-+][0-9]{1,3})?")

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The class that turns YAML into plain data, and into no other kind of object: in C if PyYAML has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A value and where it begins (from 1). `size` counts the values in it, including itself.

    `option` is the option on the command line that gave the value; line and column are then 0. `file` is the
    user's configuration, if the value comes from there; "": the job file.
    """

    line: int
    column: int
    size: int = 1
    option: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar(Node):
    """One value: `text` as it is written, `value` as YAML reads it. `reading` explains a surprising value."""

    text: str
    value: str | int | float | bool | None
    reading: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sequence(Node):
    """A list."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """Line and column of a key, and its value; `option` and `file` as in `Node`."""

    line: int
    column: int
    node: Node
    option: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapping(Node):
    """A mapping, in the order of the file. Merge keys have already been merged."""

    entries: dict[str, Entry]


def parse(text: str, file: str) -> tuple[Node, list[Problem]]:
    """Return the tree of *text*, and problems despite which it could be built (a duplicate key, a tag).

    Raises `SpecError` if there is no tree: a syntax error, no document or several, too deep, too large.
    """
    return _Builder(text, file).document()


@dataclass(frozen=True, slots=True)
class Unclear:
    """A value that YAML reads differently from its looks (`010` is 8). Only free-form fields accept it."""

    value: str | int | float | bool | None
    text: str = ""


def data(node: Node) -> Any:
    """Return the tree as dicts, tuples and scalars, for the model. A date stays text."""
    if isinstance(node, Mapping):
        return {key: data(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return tuple(data(item) for item in node.items)
    assert isinstance(node, Scalar)
    # `on` and `no` are fine for a switch. No other field accepts a bool.
    clear = not node.reading or isinstance(node.value, bool)
    return node.value if clear and "\0" not in node.text else Unclear(node.value, node.text)


def find(root: Node, path: Path) -> tuple[Node, Path]:
    """Return the node at *path*, or the nearest one above it, and that node's path."""
    node = root
    for depth, step in enumerate(path):
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            node = node.entries[step].node
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            return node, path[:depth]
    return node, path


class _Builder:
    """One pass over the events of one file."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node | None] = {}
        self.count = 0

    def document(self) -> tuple[Node, list[Problem]]:
        try:
            self.loader = LOADER(self.text)
            self.next()
            if isinstance(event := self.loader.peek_event(), yaml.StreamEndEvent):
                self.fail(event, found="no job in it", wanted="a job file", hint=START_HINT)
            self.next()
            root = self.node((), 0)
            self.next()
            if not isinstance(event := self.loader.peek_event(), yaml.StreamEndEvent):
                self.fail(event, found="a second document", wanted="one job in one file", hint=SPLIT_HINT)
        except yaml.YAMLError as error:
            raise SpecError([*self.problems, explain(error, self.text, self.file)]) from error
        return root, self.problems

    def next(self) -> Any:
        return self.loader.get_event()

    def node(self, path: Path, depth: int) -> Node:
        event = self.next()
        if depth > MAX_DEPTH:
            self.fail(event, found=f"more than {MAX_DEPTH} levels", wanted="a job file, which has few")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.charge(event, path, 1)
        node = self.value(event, path, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def value(self, event: Any, path: Path, depth: int) -> Node:
        if event.tag not in _PLAIN_TAGS:
            hint = "remove the tag; text that begins with ! needs quotes"
            self.note(event, path, found="a YAML tag", wanted="a plain value", hint=hint)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(self.loader.peek_event(), yaml.SequenceEndEvent):
                items.append(self.node((*path, len(items)), depth + 1))
            self.next()
            line, column = _place(event)
            return Sequence(line=line, column=column, size=1 + sum(i.size for i in items), items=tuple(items))
        return self.mapping(event, path, depth)

    def alias(self, event: Any, path: Path) -> Node:
        # The name is not repeated, because what looks like an alias may be a password that begins with *.
        if event.anchor not in self.anchors:
            hint = "text that begins with * needs quotes"
            self.fail(
                event,
                path,
                found="an alias without an anchor",
                wanted="an alias of an anchor above",
                hint=hint,
            )
        node = self.anchors[event.anchor]
        if node is None:
            self.fail(event, path, found="an anchor inside itself", wanted="a value that ends")
        self.charge(event, path, node.size)
        return node

    def mapping(self, event: Any, path: Path, depth: int) -> Mapping:
        own: dict[str, Entry] = {}
        merges: list[Entry] = []
        while not isinstance(key := self.next(), yaml.MappingEndEvent):
            name, merge = self.key(key, path)
            entry = Entry(*_place(key), self.node((*path, name), depth + 1))
            known = merges[0] if merge and merges else own.get(name) if not merge else None
            if known:
                again = f"it once; line {known.line} has it already"
                self.note(key, (*path, name), found="this key a second time", wanted=again)
            elif merge:
                merges.append(entry)
            else:
                own[name] = entry
        merged: dict[str, Entry] = {}
        for source in merges:
            for mapping in self.sources(source, path):
                merged = {**mapping.entries, **merged}
        entries = {**merged, **own}
        size = 1 + sum(entry.node.size for entry in entries.values())
        line, column = _place(event)
        return Mapping(line=line, column=column, size=size, entries=entries)

    def sources(self, merge: Entry, path: Path) -> Iterator[Mapping]:
        """Yield the mappings that a merge key names. If several have the same key, the first one counts."""
        named = merge.node.items if isinstance(merge.node, Sequence) else (merge.node,)
        for node in named:
            if isinstance(node, Mapping):
                yield node
            else:
                self.note(
                    node,
                    (*path, "<<"),
                    found="something that is not a mapping",
                    wanted="an alias of a mapping, or a list of them",
                )

    def key(self, event: Any, path: Path) -> tuple[str, bool]:
        """Return the key's text, and whether it is the merge key. If it is not text, note a problem."""
        if not isinstance(event, yaml.ScalarEvent):
            self.fail(
                event, path, found="a key that is an alias, a list or a mapping", wanted="a word as the key"
            )
        self.charge(event, path, 1)
        node = self.scalar(event)
        if event.anchor:
            self.anchors[event.anchor] = node
        if not isinstance(node.value, str) or node.reading:
            reading = f" (which YAML reads as {node.reading})" if node.reading else ""
            found, hint = f"the key {node.text}{reading}", f'quote it: "{node.text}"'
            if not node.text or path[:1] == ("secrets",):
                found, hint = "a key that is not text", "quote it"
            self.note(event, path, found=found, wanted="text as the key", hint=hint)
        return node.text, self.tag(event) == "merge"

    def scalar(self, event: Any) -> Scalar:
        line, column = _place(event)
        value, reading = _read(self.tag(event), event.value, self.loader)
        return Scalar(line=line, column=column, text=event.value, value=value, reading=reading)

    def tag(self, event: Any) -> str:
        """Return the scalar's type in YAML 1.1: `str`, `int`, `bool`, …, `merge`."""
        if event.tag in ("!", _STR) or (event.tag is None and not event.implicit[0]):
            return "str"
        resolved: str = self.loader.resolve(yaml.ScalarNode, event.value, (True, False))
        return resolved.rpartition(":")[2]

    def charge(self, event: Any, path: Path, size: int) -> None:
        self.count += size
        if self.count > MAX_NODES:
            found = f"more than {MAX_NODES} values once all aliases are followed"
            self.fail(event, path, found=found, wanted="a job file, which has some hundreds")

    def note(self, at: Any, path: Path, *, found: str, wanted: str, hint: str = "") -> None:
        line, column = _place(at)
        self.problems.append(
            Problem(
                file=self.file,
                line=line,
                column=column,
                path=join(path),
                found=found,
                wanted=wanted,
                hint=hint,
            )
        )

    def fail(self, at: Any, path: Path = (), *, found: str, wanted: str, hint: str = "") -> NoReturn:
        self.note(at, path, found=found, wanted=wanted, hint=hint)
        raise SpecError(self.problems)


def problem(
    file: str, at: Node | Entry, path: Path, found: str, wanted: str, hint: str = "", code: str = ""
) -> Problem:
    """Return a problem of the value or key `at`, with its place in the file or its option."""
    return Problem(
        file=at.file or file,
        line=at.line,
        column=at.column,
        path=join(path),
        found=found,
        wanted=wanted,
        hint=hint,
        code=code,
        option=at.option,
    )


def _place(at: Any) -> tuple[int, int]:
    """Return line and column, from 1, of an event or a node."""
    if isinstance(at, Node):
        return at.line, at.column
    return at.start_mark.line + 1, at.start_mark.column + 1


def _read(tag: str, text: str, loader: Any) -> tuple[str | int | float | bool | None, str]:
    """Return the value of a scalar, and what YAML reads if that is surprising."""
    if tag == "null":
        return None, ""
    if tag == "bool":
        value = text.lower() in ("yes", "true", "on")
        return value, "" if text.lower() in ("true", "false") else str(value).lower()
    if tag == "timestamp":
        return text, "a date"
    if tag in ("int", "float"):
        return _number(tag, text, loader)
    return text, ""


def _number(tag: str, text: str, loader: Any) -> tuple[str | int | float, str]:
    if _INT.fullmatch(text):
        return int(text), ""
    if len(text) > 40:  # computing such numbers takes minutes
        return text, "a number with very many digits"
    construct = loader.construct_yaml_int if tag == "int" else loader.construct_yaml_float
    try:
        value: int | float = construct(yaml.ScalarNode(f"tag:yaml.org,2002:{tag}", text))
    except (ValueError, OverflowError):
        return text, ""
    if isinstance(value, float) and not math.isfinite(value):
        return text, "a number that is not finite"
    if isinstance(value, int) and abs(value) >= 2**63:
        return text, "a number beyond 64 bits"
    return value, "" if _FLOAT.fullmatch(text) else f"the number {value}"
