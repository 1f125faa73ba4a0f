"""Insertions and removals in the text of a YAML file, at the places of its values. Pure.

What is added always stands before something that was there: a key before another key, an item before the
first one. So the text between the two is all that a removal has to take away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ddplaunch.inject.document import Value
from ddplaunch.render.kubernetes.text import block

_PLAIN = re.compile(r"--|(?:-|--|/)?[A-Za-z][-/.\w=$()]*")
"""Words that stand without quotes where their neighbours do."""
_MOVED = "move it back, or take ddplaunch's lines out by hand"


@dataclass(frozen=True)
class Edit:
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str = ""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with all edits; of several at one place the first stands first."""
    newline = "\r\n" if "\r\n" in text else "\n"
    parts, place = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[place : edit.start], edit.text.replace("\n", newline)]
        place = edit.end
    return "".join([*parts, text[place:]])


def add_key(mapping: Value, before: str, key: str, value: Any) -> Edit:
    """Return the insertion of a new key in front of the key `before`, which must be there."""
    mark = mapping.key(before).start_mark
    if mapping.in_flow_style():
        return Edit(mark.index, mark.index, f"{json.dumps(key)}: {json.dumps(value)}, ")
    lines = block({key: value}).splitlines()
    return Edit(mark.index, mark.index, "".join(f"{line}\n{' ' * mark.column}" for line in lines))


def add_item(text: str, items: Value, value: Any) -> Edit:
    """Return the insertion of a new first item. Raises UsageError."""
    first = items.items()[0].node.start_mark
    if items.in_flow_style():
        return Edit(first.index, first.index, f"{json.dumps(value)}, ")
    lines = f"\n{' ' * first.column}".join(block(value).splitlines())
    return Edit(first.index, first.index, f"{lines}\n{_dash(text, items)}")


def add_words(text: str, command: Value, words: Sequence[str]) -> Edit:
    """Return the insertion of words in front of a command. Raises UsageError."""
    first = command.items()[0].node
    plain = isinstance(first, yaml.ScalarNode) and not first.style
    written = [word if plain and _PLAIN.fullmatch(word) else json.dumps(word) for word in words]
    between = ", " if command.in_flow_style() else f"\n{_dash(text, command)}"
    return Edit(first.start_mark.index, first.start_mark.index, "".join(each + between for each in written))


def _dash(text: str, items: Value) -> str:
    """Return what stands before an item of a block list: indentation, dash, spaces. Raises UsageError."""
    start, first = items.node.start_mark, items.items()[0].node.start_mark
    between = text[start.index : first.index]
    if not re.fullmatch(r"- +", between):
        raise items.refused("a list whose first item is not beside its dash", "`- ` and the item on one line")
    return " " * start.column + between


def remove_key(mapping: Value, key: str) -> Edit:
    """Return the removal of a key that another key follows. Raises UsageError."""
    keys = [each for each, _ in mapping.entries()]
    names = [each.value for each in keys]
    place = names.index(key)
    if place + 1 == len(names):
        raise mapping.refused(f"{key} as the last key", "it where `ddplaunch inject` put it", _MOVED)
    return Edit(keys[place].start_mark.index, keys[place + 1].start_mark.index)


def remove_item(items: Value, place: int) -> Edit:
    """Return the removal of an item that another item follows. Raises UsageError."""
    return remove_words(items, place, place + 1)


def remove_words(items: Value, start: int, end: int) -> Edit:
    """Return the removal of the items from `start` to before `end`, which must be there.

    Raises UsageError.
    """
    nodes = [item.node for item in items.items()]
    if end >= len(nodes):
        raise items.refused("ddplaunch's item as the last one", "it where `ddplaunch inject` put it", _MOVED)
    return Edit(nodes[start].start_mark.index, nodes[end].start_mark.index)
