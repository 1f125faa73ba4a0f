"""The tables of a bundle: distinct frames, stacks, calls and groups, to which ranks refer by their places."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator
from typing import Any, Optional, TypeVar

from ddplaunch.agent.contract import Collective, Frame, Group, NodeEvidence, Stack, codec
from ddplaunch.agent.contract.codec import ContractError

T = TypeVar("T")

MOST_RANK = 10**6
_LATEST = 253402300799.0  # the end of the year 9999, which a calendar can show

_PLACED: dict[type, tuple[str, ...]] = {
    NodeEvidence: ("dumps", "dumps_left_out"),
    Stack: ("thread", "main", "frames"),
    Collective: ("group", "seq", "op", "sizes", "dtypes", "done", "p2p", "at", "frames", "peer", "state"),
    Group: ("name", "ranks", "enqueued", "completed", "description"),
}
"""Fields that have a place in a row or a member of their own; all others follow as an object."""


class Tables:
    """Distinct frames, stacks, calls and groups, each with its number."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[Any, int] = {}
        self.calls: dict[Any, int] = {}
        self.groups: dict[Any, int] = {}
        self._defaults: dict[type, list[tuple[str, Any]]] = {}

    def plain(self, obj: Any) -> Any:
        """Return what stands for the object in JSON."""
        kind = type(obj)
        if kind is Frame:
            return self._numbers([obj])[0]
        if kind is Stack:
            stack = (obj.thread, obj.main, self._numbers(obj.frames))
            number = self.stacks.setdefault(stack, len(self.stacks))
            more = self._others(obj)
            return [number, *more] if more else number
        if kind is Collective:
            sizes = tuple(map(tuple, obj.sizes))
            frames = self._numbers(obj.frames)
            call = (obj.group, obj.op, sizes, tuple(obj.dtypes), obj.p2p, obj.peer, frames)
            number = self.calls.setdefault(call, len(self.calls))
            return [number, obj.seq, obj.at, obj.done, obj.state, *self._others(obj)]
        if kind is Group:
            group = (obj.name, obj.description, tuple(obj.ranks))
            number = self.groups.setdefault(group, len(self.groups))
            return [number, obj.enqueued, obj.completed, *self._others(obj)]
        return self._unusual(obj)

    def _others(self, obj: Any) -> list[dict[str, Any]]:
        """Return the fields that have no place in a row, if any says something."""
        others = self._unusual(obj)
        return [others] if others else []

    def _unusual(self, obj: Any) -> dict[str, Any]:
        defaults = self._defaults.get(type(obj))
        if defaults is None:
            defaults = self._defaults[type(obj)] = list(_defaults(type(obj)))
        return {name: value for name, usual in defaults if (value := getattr(obj, name)) != usual}

    def _numbers(self, frames: list[Frame]) -> tuple[int, ...]:
        known = self.frames
        return tuple(known.setdefault((each.name, each.file, each.line), len(known)) for each in frames)


def _defaults(kind: type) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(kind):
        if field.name not in _PLACED.get(kind, ()):
            factory = field.default_factory
            yield field.name, field.default if factory is dataclasses.MISSING else factory()


class Rows:
    """The tables of a bundle, loaded once, and what refers to them. All methods raise ContractError."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._frames = [Frame(*row) for row in _rows(data, "frames", (str, str, int))]
        self._stacks = [
            Stack(thread, main, self._of(frames))
            for thread, main, frames in _rows(data, "stacks", (str, bool, list[int]))
        ]
        kinds = (str, str, list[list[int]], list[str], bool, Optional[int], list[int])
        self._calls = []
        for group, op, sizes, dtypes, p2p, peer, frames in _rows(data, "calls", kinds):
            if peer is not None and not -1 <= peer <= MOST_RANK:
                raise ContractError(f"calls: the peer {peer} cannot be")
            self._calls.append((group, op, sizes, dtypes, p2p, peer, self._of(frames)))

        self._groups = []
        for name, text, ranks in _rows(data, "groups", (str, str, list[int])):
            if ranks and not -1 <= min(ranks) <= max(ranks) <= MOST_RANK:
                raise ContractError("groups: a rank that cannot be")
            self._groups.append((name, text, ranks))

    def frame(self, data: Any) -> Any:
        return _at(self._frames, data)

    def stack(self, data: Any) -> Any:
        number, others = data, None
        if type(data) is list and len(data) == len(("number", "others")):
            number, others = data
        return _with_others(_at(self._stacks, number), others)

    def collective(self, data: Any) -> Collective:
        data, others = _apart(data)
        if list(map(type, data)) not in _COLLECTIVE:
            raise ContractError("wanted a call, its number, its time and its state")
        call, seq, at, done, state = data
        if not -1 << 63 <= seq < 1 << 63 or not 0 <= at <= _LATEST:
            raise ContractError("a number that cannot be")
        group, op, sizes, dtypes, p2p, peer, frames = _at(self._calls, call)
        if state not in _STATES:
            state = codec.load(str, state)
        more = {} if others is None else _fields(Collective, others)
        return Collective(group, seq, op, sizes, dtypes, done, p2p, float(at), frames, peer, state, **more)

    def group(self, data: Any) -> Group:
        data, others = _apart(data)
        if list(map(type, data)) != [int, int, int]:
            raise ContractError("wanted a group and two numbers")
        group, enqueued, completed = codec.load(list[int], data)
        name, text, ranks = _at(self._groups, group)
        return _with_others(Group(name, ranks, enqueued, completed, text), others)

    def _of(self, numbers: list[int]) -> list[Frame]:
        return [_at(self._frames, number) for number in numbers]


_COLLECTIVE = ([int, int, float, bool, str], [int, int, int, bool, str])
_STATES = frozenset({"", "scheduled", "started", "completed", "entered", "returned", "issued", "raised"})


def _apart(data: Any) -> tuple[list[Any], Any]:
    """Return the values of a row, and the object of further fields at its end; None: there is none."""
    row = data if type(data) is list else []
    return (row[:-1], row[-1]) if row and type(row[-1]) is dict else (row, None)


def _with_others(made: T, others: Any) -> T:
    """Return the object with further fields. Raises ContractError."""
    if others is None:
        return made
    return dataclasses.replace(made, **_fields(type(made), others))  # type: ignore[type-var]


def _fields(kind: type, others: Any) -> dict[str, Any]:
    if type(others) is not dict:
        raise ContractError("wanted further fields")
    hints = _hints(kind)
    names = [name for name in others if name in hints and name not in _PLACED[kind]]
    return {name: codec.load(hints[name], others[name]) for name in names}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _rows(data: dict[str, Any], name: str, kinds: tuple[Any, ...]) -> Iterator[list[Any]]:
    table = data.get(name)
    for row in codec.load(list[list[Any]], table):
        if len(row) != len(kinds):
            raise ContractError(f"{name}: wanted {len(kinds)} values, found {len(row)}")
        yield [codec.load(kind, value) for kind, value in zip(kinds, row)]


def _at(table: list[Any], number: Any) -> Any:
    if type(number) is not int or not 0 <= number < len(table):
        raise ContractError("it refers to an entry that is not there")
    return table[number]
