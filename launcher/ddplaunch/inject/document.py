"""Reads the documents of a YAML file, each value with its place in the text, and changes the text. Pure.

What is added always comes before something that was there: a key before another key, an item before the first
one. So a removal only has to take away the text between the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ddplaunch.errors import UsageError
from ddplaunch.render.kubernetes.text import block

_KINDS = {yaml.ScalarNode: "text", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}


@dataclass(frozen=True)
class Value:
    """A value: its node, its path in the document, and the file, for messages."""

    node: yaml.Node
    path: str
    file: str

    def refused(self, found: str, wanted: str, hint: str = "") -> UsageError:
        """Return the error for this value."""
        place = f"{self.file}:{self.node.start_mark.line + 1}: {self.path or 'the document'}"
        return UsageError(f"{place}: found {found}, wanted {wanted}", hint)

    def entries(self) -> list[tuple[yaml.Node, Value]]:
        """Return the nodes of the keys, and the values. Raises UsageError unless it is a mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refused(_kind(self.node), "a mapping")
        return [(key, self._below(f".{key.value}", value)) for key, value in self.node.value]

    def items(self) -> list[Value]:
        """Return the items. Raises UsageError unless it is a list that has items."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refused(_kind(self.node), "a list")
        if not self.node.value:
            raise self.refused("an empty list", "a list with items, or no such key")
        return [self._below(f"[{place}]", item) for place, item in enumerate(self.node.value)]

    def key(self, name: str) -> yaml.Node:
        """Return the node of the key with this name, which must be there."""
        return next(key for key, _ in self.entries() if key.value == name)

    def get(self, *names: str) -> Value | None:
        """Return the value under these keys, each below the one before; None if one is missing."""
        value: Value | None = self
        for name in names:
            if value is None:
                return None
            value = next((each for key, each in value.entries() if key.value == name), None)
        return value

    def need(self, *names: str, wanted: str, hint: str = "") -> Value:
        """Return the value under these keys. Raises UsageError if one is missing."""
        value = self.get(*names)
        if value is None:
            raise self.refused(f"no {'.'.join(names)}", wanted, hint)
        return value

    def text(self) -> str:
        """Return a scalar as it is written. Raises UsageError."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.refused(_kind(self.node), "text")
        return str(self.node.value)

    def number(self) -> int:
        """Return a whole number of 1 or more. Raises UsageError."""
        if not self.text().isdecimal() or int(self.text()) < 1:
            raise self.refused(self.text() or "nothing", "a number from 1")
        return int(self.text())

    def in_flow_style(self) -> bool:
        """Whether it is a list or a mapping in brackets, as in JSON."""
        return bool(getattr(self.node, "flow_style", False))

    def name(self) -> str:
        """Return the value of `name`; empty if there is none."""
        name = self.get("name") if isinstance(self.node, yaml.MappingNode) else None
        return name.text() if name else ""

    def _below(self, step: str, node: yaml.Node) -> Value:
        return Value(node, f"{self.path}{step}".lstrip("."), self.file)


def read(text: str, file: str) -> list[Value]:
    """Return the documents that are not empty. Raises UsageError for anything that is not YAML."""
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else file
        problem = getattr(error, "problem", None) or "a character that YAML forbids"
        hint = "a template must be rendered first: `helm template … | ddplaunch inject -`"
        raise UsageError(f"{place}: found {problem}, wanted YAML", hint) from error
    except RecursionError as error:
        raise UsageError(
            f"{file}: found lists or mappings that are nested too deeply, wanted a manifest"
        ) from error
    return [Value(node, "", file) for node in nodes if isinstance(node, yaml.MappingNode)]


def refuse_aliases(document: Value) -> None:
    """Refuse a document in which one value is used twice: changing one use would change both."""
    known: set[int] = set()
    for value in walk(document):
        if id(value.node) in known and value.node.value:
            raise value.refused("an alias (*) of another value", "a manifest without aliases", "write it out")
        known.add(id(value.node))


def walk(value: Value) -> Iterator[Value]:
    """Yield the value and all values in it, without the keys of mappings."""
    left = [value]
    while left:
        here = left.pop()
        yield here
        if isinstance(here.node, yaml.MappingNode):
            left += [each for _, each in here.entries()]
        elif isinstance(here.node, yaml.SequenceNode) and here.node.value:
            left += here.items()


def _kind(node: yaml.Node) -> str:
    return "nothing" if node.value == "" else _KINDS.get(type(node), "something else")


_PLAIN = re.compile(r"--|(?:-|--|/)?[A-Za-z][-/.\w=$()]*")
"""Words that are written without quotes if their neighbours are."""
_MOVED = "move it back, or take ddplaunch's lines out by hand"


@dataclass(frozen=True)
class Edit:
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str = ""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits. If there are several at one place, the first one comes first."""
    newline = "\r\n" if "\r\n" in text else "\n"
    parts, place = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[place : edit.start], edit.text.replace("\n", newline)]
        place = edit.end
    return "".join([*parts, text[place:]])


def add_key(mapping: Value, before: str, key: str, value: Any) -> Edit:
    """Return the edit that adds a new key before the key `before`, which must be there."""
    mark = mapping.key(before).start_mark
    if mapping.in_flow_style():
        return Edit(mark.index, mark.index, f"{json.dumps(key)}: {json.dumps(value)}, ")
    lines = block({key: value}).splitlines()
    return Edit(mark.index, mark.index, "".join(f"{line}\n{' ' * mark.column}" for line in lines))


def add_item(text: str, items: Value, value: Any) -> Edit:
    """Return the edit that adds a new first item. Raises UsageError."""
    first = items.items()[0].node.start_mark
    if items.in_flow_style():
        return Edit(first.index, first.index, f"{json.dumps(value)}, ")
    lines = f"\n{' ' * first.column}".join(block(value).splitlines())
    return Edit(first.index, first.index, f"{lines}\n{_dash(text, items)}")


def add_words(text: str, command: Value, words: Sequence[str]) -> Edit:
    """Return the edit that adds words before a command. Raises UsageError."""
    first = command.items()[0].node
    plain = isinstance(first, yaml.ScalarNode) and not first.style
    written = [word if plain and _PLAIN.fullmatch(word) else json.dumps(word) for word in words]
    between = ", " if command.in_flow_style() else f"\n{_dash(text, command)}"
    return Edit(first.start_mark.index, first.start_mark.index, "".join(each + between for each in written))


def _dash(text: str, items: Value) -> str:
    """Return what comes before an item of a block list: indentation, dash, spaces. Raises UsageError."""
    start, first = items.node.start_mark, items.items()[0].node.start_mark
    between = text[start.index : first.index]
    if not re.fullmatch(r"- +", between):
        raise items.refused(
            "a list whose first item is not on the line of its dash", "`- ` and the item on one line"
        )
    return " " * start.column + between


def remove_key(mapping: Value, key: str) -> Edit:
    """Return the edit that removes a key which another key follows. Raises UsageError."""
    keys = [each for each, _ in mapping.entries()]
    names = [each.value for each in keys]
    place = names.index(key)
    if place + 1 == len(names):
        raise mapping.refused(f"{key} as the last key", "it where `ddplaunch inject` put it", _MOVED)
    return Edit(keys[place].start_mark.index, keys[place + 1].start_mark.index)


def remove_item(items: Value, place: int) -> Edit:
    """Return the edit that removes an item which another item follows. Raises UsageError."""
    return remove_words(items, place, place + 1)


def remove_words(items: Value, start: int, end: int) -> Edit:
    """Return the edit that removes the items from `start` up to `end`, which must be there and stays.

    Raises UsageError.
    """
    nodes = [item.node for item in items.items()]
    if end >= len(nodes):
        raise items.refused("ddplaunch's item as the last one", "it where `ddplaunch inject` put it", _MOVED)
    return Edit(nodes[start].start_mark.index, nodes[end].start_mark.index)
