"""Converts the dataclasses of the contract to JSON and back. Unknown keys are ignored."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from typing import Any, Callable, Optional, TypeVar, Union

from ddplaunch.agent.text import mentions
from ddplaunch.agent.text.mentions import Template

T = TypeVar("T")
Short = dict[type, Callable[[Any, str], Any]]

_UNIONS = (Union, getattr(types, "UnionType", Union))  # Optional[X]; X | None, from Python 3.10
_PLAIN = frozenset({str, int, float, bool, type(None)})

_MOST_FLOAT = 1e18
_MOST_INT = 1 << 64

_hints: dict[type, dict[str, Any]] = {}
_fields: dict[type, list[tuple[str, bool]]] = {}


class ContractError(ValueError):
    """A message or file does not have the shape that the contract defines."""


def dump(obj: Any) -> Any:
    """Return plain data for `json.dumps`. A field that is None is left out where its default is None."""
    if type(obj) in _PLAIN:
        return obj
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {name: dump(value) for name, value in _members(obj).items()}
    if isinstance(obj, (list, tuple)):
        return [dump(item) for item in obj]
    if isinstance(obj, dict):
        return {key: dump(value) for key, value in obj.items()}
    return obj


def _members(obj: Any) -> dict[str, Any]:
    kind = type(obj)
    names = _fields.get(kind)
    if names is None:
        absent = (None, dataclasses.MISSING)
        names = _fields[kind] = [(f.name, f.default in absent) for f in dataclasses.fields(kind)]
    pairs = ((name, getattr(obj, name), absent) for name, absent in names)
    return {name: value for name, value, absent in pairs if value is not None or not absent}


def load(cls: type[T], data: Any, short: Optional[Short] = None) -> T:
    """Return `data` as a `cls`. Raises ContractError, with the place, where the shape differs.

    `short`: what makes an object of these classes of anything but a JSON object.
    """
    value: T = _load(cls, data, getattr(cls, "__name__", "value"), short or {})
    return value


def _load(kind: Any, data: Any, where: str, short: Short) -> Any:
    if kind is Any:
        return _unmarked(data)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        words = typing.get_args(kind)
        if not isinstance(data, str) or data not in words:
            raise ContractError(f"{where}: wanted one of {', '.join(words)}, found {_shown(data)}")
        return data
    if origin in _UNIONS:
        return None if data is None else _load(typing.get_args(kind)[0], data, where, short)
    if origin is list:
        _expect(isinstance(data, list), where, "a list", data)
        (item,) = typing.get_args(kind)
        return [_load(item, value, f"{where}[{i}]", short) for i, value in enumerate(data)]
    if origin is dict:
        _expect(isinstance(data, dict), where, "an object", data)
        item = typing.get_args(kind)[1]
        return {key: _load(item, value, f"{where}.{key}", short) for key, value in data.items()}
    if dataclasses.is_dataclass(kind):
        return _load_dataclass(kind, data, where, short)
    if kind is Template:
        _expect(isinstance(data, str), where, "a text", data)
        return Template(data)
    if kind is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), where, "a number", data)
        _expect(-_MOST_FLOAT <= data <= _MOST_FLOAT, where, "a finite number", data)  # NaN is not
        return float(data)
    _expect(type(data) is kind, where, kind.__name__, data)
    _expect(kind is not int or -_MOST_INT <= data < _MOST_INT, where, "64 bits", data)
    return mentions.escaped(data) if kind is str else data


def _unmarked(data: Any) -> Any:
    """Return plain data of any shape in which no text makes a mention."""
    if isinstance(data, str):
        return mentions.escaped(data)
    if isinstance(data, list):
        return [_unmarked(each) for each in data]
    if isinstance(data, dict):
        return {key: _unmarked(each) for key, each in data.items()}
    return data


def _load_dataclass(kind: Any, data: Any, where: str, short: Short) -> Any:
    if kind in short and type(data) is not dict:
        return short[kind](data, where)
    _expect(isinstance(data, dict), where, "an object", data)
    hints = _hints.get(kind)
    if hints is None:
        hints = _hints[kind] = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            values[field.name] = _load(hints[field.name], data[field.name], f"{where}.{field.name}", short)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            if typing.get_origin(hints[field.name]) not in _UNIONS:
                raise ContractError(f"{where}: the key {field.name} is missing")
            values[field.name] = None
    return kind(**values)


def _shown(data: Any) -> str:
    return repr(data[:20]) if isinstance(data, str) else type(data).__name__


def _expect(ok: bool, where: str, wanted: str, data: Any) -> None:
    if not ok:
        raise ContractError(f"{where}: wanted {wanted}, found {type(data).__name__}")


def read(cls: type[T], path: str) -> T:
    """Return the `cls` in the JSON file at `path`. Raises OSError or ContractError."""
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ContractError(f"{path}: not JSON: {error}") from error
    return load(cls, data)


def write(path: str, obj: Any, mode: int = 0o644) -> None:
    """Write `obj` as JSON, as `replace` does. Raises OSError."""
    replace(path, text(obj), mode)


def text(obj: Any) -> str:
    """Return the JSON of `dump`, without the copy of the data that `dump` makes."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=True, default=_members)


def replace(path: str, text: Union[str, bytes], mode: int = 0o644) -> None:
    """Write a file, so that a reader sees the old one or the new one, never a part. Raises OSError."""
    temporary = unfinished(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.truncate()  # frees the rest of the reserved space
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def unfinished(path: str) -> str:
    """Return the temporary file of `replace`. One that exists already has reserved its space."""
    return f"{path}.{os.getpid()}.tmp"
