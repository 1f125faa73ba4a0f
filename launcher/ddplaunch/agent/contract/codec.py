"""Converts the dataclasses of the contract to JSON and back. Unknown keys are ignored."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from typing import Any, TypeVar, Union

T = TypeVar("T")

_UNIONS = (Union, getattr(types, "UnionType", Union))  # Optional[X]; X | None, from Python 3.10
_PLAIN = frozenset({str, int, float, bool, type(None)})

_MOST_FLOAT = 1e18
_MOST_INT = 1 << 64

_hints: dict[type, dict[str, Any]] = {}
_fields: dict[type, list[tuple[str, bool]]] = {}


class ContractError(ValueError):
    """A message or file does not have the shape the contract promises."""


def dump(obj: Any) -> Any:
    """Plain data for `json.dumps`. A field that is None is left out where the lack of it means None."""
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


def load(cls: type[T], data: Any) -> T:
    """`data` as a `cls`. Raises ContractError, naming the place, where the shape differs."""
    value: T = _load(cls, data, cls.__name__)
    return value


def _load(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin = typing.get_origin(kind)
    if origin in _UNIONS:
        return None if data is None else _load(typing.get_args(kind)[0], data, where)
    if origin is list:
        _expect(isinstance(data, list), where, "a list", data)
        (item,) = typing.get_args(kind)
        return [_load(item, value, f"{where}[{i}]") for i, value in enumerate(data)]
    if origin is dict:
        _expect(isinstance(data, dict), where, "an object", data)
        item = typing.get_args(kind)[1]
        return {key: _load(item, value, f"{where}.{key}") for key, value in data.items()}
    if dataclasses.is_dataclass(kind):
        return _load_dataclass(kind, data, where)
    if kind is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), where, "a number", data)
        _expect(-_MOST_FLOAT <= data <= _MOST_FLOAT, where, "a finite number", data)  # NaN is not
        return float(data)
    _expect(type(data) is kind, where, kind.__name__, data)
    _expect(kind is not int or -_MOST_INT <= data < _MOST_INT, where, "64 bits", data)
    return data


def _load_dataclass(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), where, "an object", data)
    hints = _hints.get(kind)
    if hints is None:
        hints = _hints[kind] = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            values[field.name] = _load(hints[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            if typing.get_origin(hints[field.name]) not in _UNIONS:
                raise ContractError(f"{where}: the key {field.name} is missing")
            values[field.name] = None
    return kind(**values)


def _expect(ok: bool, where: str, wanted: str, found: Any) -> None:
    if not ok:
        raise ContractError(f"{where}: wanted {wanted}, found {type(found).__name__}")


def read(cls: type[T], path: str) -> T:
    """The `cls` in the JSON file at `path`. Raises OSError or ContractError."""
    with open(path, encoding="utf-8") as file:
        try:
            data = json.load(file)
        except ValueError as error:
            raise ContractError(f"{path}: not JSON: {error}") from error
    return load(cls, data)


def write(path: str, obj: Any, mode: int = 0o644) -> None:
    """Write `obj` as `replace` does."""
    replace(path, text(obj), mode)


def text(obj: Any) -> str:
    """`dump` as JSON, without the copy of everything that `dump` makes."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=True, default=_members)


def replace(path: str, text: str, mode: int = 0o644) -> None:
    """Write `text` so that a reader sees the old file or the new one whole, never a part."""
    temporary = unfinished(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.truncate()  # room that was kept for it is given back only now
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def unfinished(path: str) -> str:
    """Return where `replace` writes what will be at `path`. A file that is there lends its room."""
    return f"{path}.{os.getpid()}.tmp"
