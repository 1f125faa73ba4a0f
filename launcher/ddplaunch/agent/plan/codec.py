"""Converts the dataclasses of the contract to JSON and back. Unknown keys are ignored.

A class that is written in another shape than its own, as a verdict is, names that one in `json_form`: a
dataclass whose `read()` returns the object, and which the object's `written()` returns.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import types
import typing
from typing import Any, Callable, Optional, TypeVar, Union

T = TypeVar("T")
Short = dict[type, Callable[[Any], Any]]
_Loader = Callable[[Any, Short], Any]

_UNIONS = (Union, getattr(types, "UnionType", Union))  # Optional[X]; X | None, from Python 3.10
_PLAIN = frozenset({str, int, float, bool, type(None)})

_MOST_FLOAT = 1e18
_MOST_INT = 1 << 64

_fields: dict[type, list[tuple[str, bool]]] = {}


class ContractError(ValueError):
    """A message or file does not have the shape that the contract defines. `place`: where in it."""

    place = ""

    def below(self, place: str) -> None:
        """Note the place in which its own lies."""
        self.place = place + self.place


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
    obj = written(obj)
    kind = type(obj)
    names = _fields.get(kind)
    if names is None:
        absent = (None, dataclasses.MISSING)
        names = _fields[kind] = [(f.name, f.default in absent) for f in dataclasses.fields(kind)]
    pairs = ((name, getattr(obj, name), absent) for name, absent in names)
    return {name: value for name, value, absent in pairs if value is not None or not absent}


def written(obj: Any) -> Any:
    """Return the dataclass whose fields stand for the object in JSON: mostly the object itself."""
    return obj.written() if hasattr(type(obj), "json_form") else obj


def load(cls: type[T], data: Any, short: Optional[Short] = None) -> T:
    """Return `data` as a `cls`. Raises ContractError, with the place, where the shape differs.

    `short`: what makes an object of these classes of anything but a JSON object.
    """
    kind: Any = cls
    try:
        value: T = _loader(kind)(data, short or {})
    except ContractError as error:
        where = getattr(cls, "__name__", "value")
        raise ContractError(f"{where}{error.place}: {error}") from error
    return value


@functools.cache
def _loader(kind: Any) -> _Loader:
    """Return the function that makes a `kind` of plain data. Each type is inspected once."""
    origin, words = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda data, _: data
    if origin is typing.Literal:
        return lambda data, _: _word(data, words)
    if origin in _UNIONS:
        item = _loader(words[0])
        return lambda data, short: None if data is None else item(data, short)
    if origin is list:
        return _list_loader(_loader(words[0]))
    if origin is dict:
        return _dict_loader(_loader(words[1]))
    if hasattr(kind, "json_form"):
        read = _loader(kind.json_form)
        return lambda data, short: read(data, short).read()
    if dataclasses.is_dataclass(kind):
        return _object_loader(kind)
    plain = {float: _number, int: _whole}.get(kind)
    return plain or (lambda data, _: _same(kind, data))


def _word(data: Any, words: tuple[str, ...]) -> Any:
    if not isinstance(data, str) or data not in words:
        raise ContractError(f"wanted one of {', '.join(words)}, found {_shown(data)}")
    return data


def _list_loader(item: _Loader) -> _Loader:
    def load_list(data: Any, short: Short) -> Any:
        _expect(isinstance(data, list), "a list", data)
        loaded: list[Any] = []
        try:
            loaded.extend(item(value, short) for value in data)
        except ContractError as error:
            error.below(f"[{len(loaded)}]")
            raise
        return loaded

    return load_list


def _dict_loader(item: _Loader) -> _Loader:
    def load_dict(data: Any, short: Short) -> Any:
        _expect(isinstance(data, dict), "an object", data)
        loaded = {}
        for key, value in data.items():
            try:
                loaded[key] = item(value, short)
            except ContractError as error:
                error.below(f".{key}")
                raise
        return loaded

    return load_dict


def _object_loader(kind: Any) -> _Loader:
    hints = typing.get_type_hints(kind)
    absent = dataclasses.MISSING
    fields = [
        (
            each.name,
            _loader(hints[each.name]),
            each.default is absent and each.default_factory is absent,
            typing.get_origin(hints[each.name]) in _UNIONS,
        )
        for each in dataclasses.fields(kind)
    ]

    def load_object(data: Any, short: Short) -> Any:
        if kind in short and type(data) is not dict:
            return short[kind](data)
        _expect(isinstance(data, dict), "an object", data)
        values = {}
        for name, item, needed, may_be_none in fields:
            if name in data:
                try:
                    values[name] = item(data[name], short)
                except ContractError as error:
                    error.below(f".{name}")
                    raise
            elif needed:
                if not may_be_none:
                    raise ContractError(f"the key {name} is missing")
                values[name] = None
        return kind(**values)

    return load_object


def _number(data: Any, _: Short) -> Any:
    _expect(isinstance(data, (int, float)) and not isinstance(data, bool), "a number", data)
    _expect(-_MOST_FLOAT <= data <= _MOST_FLOAT, "a finite number", data)  # NaN is not
    return float(data)


def _whole(data: Any, _: Short) -> Any:
    _expect(type(data) is int, "int", data)
    _expect(-_MOST_INT <= data < _MOST_INT, "64 bits", data)
    return data


def _same(kind: type, data: Any) -> Any:
    _expect(type(data) is kind, kind.__name__, data)
    return data


def _shown(data: Any) -> str:
    return repr(data[:20]) if isinstance(data, str) else type(data).__name__


def _expect(ok: bool, wanted: str, data: Any) -> None:
    if not ok:
        raise ContractError(f"wanted {wanted}, found {type(data).__name__}")


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
