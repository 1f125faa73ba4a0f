"""Reads what a job has left, with bounds: on a shared disk it may be broken, or made to harm its reader."""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from ddplaunch.agent.contract import Bundle, codec

T = TypeVar("T")

MAX_BYTES: Final = 24 << 20
"""The largest bundle that is parsed: the evidence of thousands of ranks, in less than 200 MB of memory."""
MAX_SMALL: Final = 4 << 20
"""The same of all other files: the status of thousands of nodes."""
_MAX_VALUES: Final = 2_000_000
_MAX_KEYS: Final = 1_200_000

_COUNTS: Final = ("node", "nodes", "nproc_per_node", "rank", "ranks", "peer", "victims", "waiting_for")
_MOST: Final = 10**6
_TIMES: Final = ("at", "since", "started", "updated", "written")
_LATEST: Final = 253402300799.0  # the end of the year 9999, which a calendar can show
_NUMBERS: Final = {**dict.fromkeys(_COUNTS, float(_MOST)), **dict.fromkeys(_TIMES, _LATEST)}


class NotPlainError(OSError):
    """A folder, a named pipe, a device or a loop of links stands where a file is read."""


def opened(path: Path) -> BinaryIO:
    """A plain file, to be read. Raises OSError, which NotPlainError is."""
    # A named pipe without a writer would keep us waiting for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlainError(f"{path} is a loop of links") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlainError(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")


def contents(path: Path, most: int = MAX_SMALL) -> bytes:
    """Return all of a plain file. Raises OSError, or ContractError for what is no plain file or too large."""
    try:
        with opened(path) as file:
            data = file.read(most + 1)
    except NotPlainError as error:
        raise codec.ContractError(str(error)) from error
    if len(data) > most:
        raise codec.ContractError(f"{path} has more than {most:,} bytes")
    return data


def tail(path: Path, most: int) -> bytes:
    """The last bytes of a plain file. Raises OSError."""
    with opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def read(cls: type[T], path: Path) -> T:
    """The `cls` in the JSON file at *path*. Raises OSError or ContractError."""
    data = contents(path, _most(cls))
    try:
        return load(cls, data)
    except codec.ContractError as error:
        raise codec.ContractError(f"{path}: {error}") from error


def load(cls: type[T], text: bytes | str) -> T:
    """The `cls` in JSON text. Raises ContractError for whatever else it may be."""
    return codec.load(cls, parse(text, _most(cls)))


def parse(text: bytes | str, most: int = MAX_SMALL) -> Any:
    """The values in JSON text. Raises ContractError for whatever else it may be."""
    if len(text) > most:
        raise codec.ContractError(f"more than {most:,} bytes")
    try:
        # Agents write ASCII alone, and one wide letter makes four bytes of each.
        text = text.decode("ascii") if isinstance(text, bytes) else text
        # A byte of text can make thirty of values, so they are counted first.
        if sum(map(text.count, "{[,")) > _MAX_VALUES or text.count(":") > _MAX_KEYS:
            raise codec.ContractError("it holds more values than a job has")
        return json.loads(text, object_hook=_believed)
    except codec.ContractError:
        raise
    except RecursionError as error:
        raise codec.ContractError("not JSON of ours: nested too deeply") from error
    except (ValueError, OverflowError) as error:
        raise codec.ContractError(f"not JSON: {error}") from error


def inflate(data: bytes) -> bytes:
    """Return what zlib has packed. Raises ContractError where it is broken, or grows beyond all measure."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_BYTES + 1)
    except zlib.error as error:
        raise codec.ContractError(f"cannot be unpacked: {error}") from error
    if len(text) > MAX_BYTES or not unpacker.eof:
        raise codec.ContractError(f"is cut off, or unpacks to more than {MAX_BYTES:,} bytes")
    return text


def _most(cls: type[Any]) -> int:
    return MAX_BYTES if cls is Bundle else MAX_SMALL


def _believed(found: dict[str, Any]) -> dict[str, Any]:
    for key in found.keys() & _NUMBERS.keys():
        value, most = found[key], _NUMBERS[key]
        for number in value if isinstance(value, list) else (value,):
            if isinstance(number, (int, float)) and not -most <= number <= most:
                raise codec.ContractError(f"{key} is {str(number)[:40]}, which cannot be")
    return found
