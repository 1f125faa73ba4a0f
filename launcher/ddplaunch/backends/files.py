"""Reads a job's files within bounds: on a shared disk they may be broken, or made to harm their reader.

All backends read through this.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from ddplaunch.agent.contract import Bundle, Marks, bundle_file, codec

T = TypeVar("T")

MAX_BYTES: Final = 24 << 20
"""The largest bundle that is parsed: it holds the evidence of thousands of ranks, in less than 200 MB of
memory."""
MAX_SMALL: Final = 4 << 20
"""The largest of all other files: it holds the status of thousands of nodes."""
_MAX_WEIGHT: Final = 3_700_000
_WEIGHTS: Final = {"{": 3, "[": 2, ",": 1}  # of an object, a list, and a value in either of them
_MAX_KEYS: Final = 1_200_000

_COUNTS: Final = (
    "node",
    "nodes",
    "nproc_per_node",
    "rank",
    "ranks",
    "others",
    "peer",
    "victims",
    "waiting_for",
)
_MOST: Final = 10**6
_TIMES: Final = ("at", "since", "started", "updated", "written")
_LATEST: Final = 253402300799.0  # the end of the year 9999, which a calendar can show
_NUMBERS: Final = {**dict.fromkeys(_COUNTS, float(_MOST)), **dict.fromkeys(_TIMES, _LATEST)}


class NotPlainError(OSError):
    """A folder, a named pipe, a device or a loop of links is in the place of the file to read."""


def opened(path: Path) -> BinaryIO:
    """Return the plain file at `path`, opened for reading. Raises OSError, of which NotPlainError is one."""
    # Without O_NONBLOCK, opening a named pipe blocks until somebody writes to it.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlainError(f"{path} is a link that leads back to itself") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlainError(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def contents(path: Path, most: int = MAX_SMALL) -> bytes:
    """Return all of a plain file. Raises OSError, or ContractError if it is not a plain file or too large."""
    try:
        with opened(path) as file:
            data = file.read(most + 1)
    except NotPlainError as error:
        raise codec.ContractError(str(error)) from error
    if len(data) > most:
        raise codec.ContractError(f"{path} has more than {most:,} bytes")
    return data


def tail(path: Path, most: int) -> bytes:
    """Return the last bytes of a plain file, `most` of them at the most. Raises OSError."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def read(cls: type[T], path: Path) -> T:
    """Return the `cls` in the JSON file at `path`, which is no bundle. Raises OSError or ContractError."""
    try:
        return load(cls, contents(path))
    except codec.ContractError as error:
        raise codec.ContractError(f"{path}: {error}") from error


def read_if_valid(cls: type[T], path: Path) -> T | None:
    """Return the `cls` in the JSON file at `path`; None if there is none that can be read."""
    try:
        return read(cls, path)
    except (OSError, codec.ContractError):
        return None


def read_bundle(path: Path, dumps: int = 0) -> Bundle:
    """Return the bundle in a file of either format. Raises OSError or ContractError.

    `dumps`: how many bytes of flight recorders to include.
    """
    try:
        with opened(path) as file:
            return bundle_file.load(file, _bundle_values, MAX_BYTES, dumps)
    except NotPlainError as error:
        raise codec.ContractError(str(error)) from error
    except codec.ContractError as error:
        raise codec.ContractError(f"{path}: {error}") from error


def bundle(text: bytes | str) -> Bundle:
    """Return the bundle in JSON, or in an archive as base64. Raises ContractError for any other text."""
    text = text.strip()
    if text[:1] in (b"{", "{"):
        return codec.load(Bundle, _bundle_values(text))
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise codec.ContractError(f"neither JSON nor base64: {error}") from error
    if data[:2] != b"PK":  # agents printed it in this form before there was an archive
        data = inflate(data)
    return bundle_file.load(io.BytesIO(data), _bundle_values, MAX_BYTES, bundle_file.MOST_DUMPS)


def _bundle_values(text: bytes | str) -> Any:
    return parse(text, MAX_BYTES)


def load(cls: type[T], text: bytes | str) -> T:
    """Return the `cls` in JSON text. Raises ContractError for any other text."""
    return codec.load(cls, parse(text))


def parse(text: bytes | str, most: int = MAX_SMALL) -> Any:
    """Return the values in JSON text. Raises ContractError for any other text."""
    if len(text) > most:
        raise codec.ContractError(f"more than {most:,} bytes")
    try:
        if isinstance(text, bytes):
            # One wide letter makes each letter take four bytes. Bundles are large, and agents write them in
            # ASCII; a plan is small, and has your file names as you write them.
            text = text.decode("ascii" if len(text) > MAX_SMALL else "utf-8")
        # One byte of text can become thirty bytes of values, so they are counted first.
        weight = sum(text.count(mark) * each for mark, each in _WEIGHTS.items())
        if weight > _MAX_WEIGHT or text.count(":") > _MAX_KEYS:
            raise codec.ContractError("it contains more values than any job has")
        return json.loads(text, object_hook=_within_bounds)
    except codec.ContractError:
        raise
    except RecursionError as error:
        raise codec.ContractError("not JSON of ours: nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise codec.ContractError(f"not JSON: {error}") from error


def inflate(data: bytes) -> bytes:
    """Return what zlib has packed. Raises ContractError for broken data, and if it is more than MAX_BYTES."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_BYTES + 1)
    except zlib.error as error:
        raise codec.ContractError(f"cannot be unpacked: {error}") from error
    if len(text) > MAX_BYTES or not unpacker.eof:
        raise codec.ContractError(f"is cut off, or unpacks to more than {MAX_BYTES:,} bytes")
    return text


def _within_bounds(found: dict[str, Any]) -> dict[str, Any]:
    """Return the object. Raises ContractError for a count or a time that is impossible."""
    for key in found.keys() & _NUMBERS.keys():
        value, most = found[key], _NUMBERS[key]
        for number in value if isinstance(value, list) else (value,):
            if isinstance(number, (int, float)) and not -most <= number <= most:
                raise codec.ContractError(f"{key} is {str(number)[:40]}, which is impossible")
    return found


def printed_bundle(lines: Iterable[str]) -> Bundle | None:
    """Return the last whole bundle in these lines; None if there is none."""
    return next(reversed(list(printed_bundles(lines))), None)


def printed_bundles(lines: Iterable[str]) -> Iterator[Bundle]:
    """Yield the whole bundles in these lines, one for each attempt that the hub has seen."""
    block: list[str] | None = None
    size = 0
    for line in lines:
        text = line.strip()
        if text == Marks.BUNDLE:
            block, size = [], 0
        elif text == Marks.BUNDLE_END and block is not None:
            found, block = _unpacked("".join(block)), None
            if found is not None:
                yield found
        elif block is not None:
            size += len(text)
            if size > MAX_BYTES:
                block = None
            else:
                block.append(text)


def _unpacked(text: str) -> Bundle | None:
    try:
        return bundle(text)
    except codec.ContractError:
        return None
