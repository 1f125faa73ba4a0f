"""The bundle as a file: a zip archive that a person can open, and that torch's own tools can read in
part.

docs/reference/bundle.md has the layout. In `bundle.json` each distinct frame, stack, call, group and sequence
of calls stands once, in a table, and ranks refer to it by its place there. `flight/BACKEND/rank_N` is a whole
flight recorder; nothing here unpacks it. Format 1, which is still read, was the JSON of a `Bundle` alone.
"""

from __future__ import annotations

import base64
import dataclasses
import errno
import functools
import io
import json
import struct
import time
import typing
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Callable, Optional, TypeVar

from ddplaunch.agent.contract import (
    Bundle,
    CallSequence,
    CallSite,
    Collective,
    Dump,
    Frame,
    Group,
    NodeEvidence,
    Stack,
    codec,
)
from ddplaunch.agent.plan.codec import ContractError
from ddplaunch.agent.text.printable import printable

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
    """Distinct frames, stacks, calls, groups and sequences of calls, each with its number."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[Any, int] = {}
        self.calls: dict[Any, int] = {}
        self.groups: dict[Any, int] = {}
        self.sequences: dict[Any, int] = {}
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
        if kind is CallSequence:
            sites = tuple((site.op, *self._numbers([site.line])) for site in obj.sites)
            sequence = (obj.group, obj.first, sites, tuple(obj.calls))
            return self.sequences.setdefault(sequence, len(self.sequences))
        return self._unusual(codec.written(obj))

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

        self._sequences = []
        rows = _rows(data, "sequences", (str, int, list[list[Any]], list[int])) if "sequences" in data else ()
        for group, first, sites, calls in rows:  # bundles of before there were any have no such table
            if any(len(site) != len(("op", "frame")) for site in sites):
                raise ContractError("sequences: wanted calls and their frames")
            known = [CallSite(codec.load(str, op), _at(self._frames, frame)) for op, frame in sites]
            self._sequences.append(CallSequence(group, first, known, calls))

    def frame(self, data: Any) -> Any:
        return _at(self._frames, data)

    def stack(self, data: Any) -> Any:
        number, others = data, None
        if type(data) is list and len(data) == len(("number", "others")):
            number, others = data
        return _with_others(_at(self._stacks, number), others)

    def sequence(self, data: Any) -> Any:
        return _at(self._sequences, data)

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


FORMAT = 2
TEXT = "bundle.json"
README = "README.txt"
FLIGHT = "flight/{backend}/rank_{rank}"
MOST_DUMPS = 8 << 20
"""Bytes of all dumps in one bundle, packed: of 230 ranks that have the 2,000 entries that torch keeps."""
_MOST_TEXT = 1 << 28
_MOST_DIRECTORY = 1 << 20  # bytes of a zip's list of members
_LEVEL = 6
_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_ABOUT = """ddplaunch bundle, format {format}: job {job}, attempt {attempt}, {nodes} nodes

{verdicts}

Read it, on any machine:     ddplaunch diagnose BUNDLE.zip
bundle.json                  check-ins, evidence of all ranks, verdicts, events
flight/BACKEND/rank_N        torch's flight recorder of {dumps} ranks{left}, each a pickle:
                             unzip BUNDLE.zip -d x && torchfrtrace x/flight/BACKEND --prefix rank_
                             (with --allow-incomplete-ranks where ranks are missing)
"""


# --- writing


def write(path: str, bundle: Bundle, mode: int = 0o644) -> None:
    """Write the bundle, as `codec.replace` does; on a full disk without dumps. Raises OSError."""
    try:
        codec.replace(path, packed(bundle), mode)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        codec.replace(path, packed(bundle, 0), mode)


def packed(bundle: Bundle, most_dumps: int = MOST_DUMPS) -> bytes:
    """Return the archive, with as many of the dumps as fit into `most_dumps` bytes, in their order."""
    dumps = {}
    left = 0
    for node in bundle.evidence.evidence if bundle.evidence else []:
        left += node.dumps_left_out
        for dump in node.dumps:
            data = _stream(dump)
            most_dumps -= len(data)
            if data and most_dumps >= 0:
                dumps[FLIGHT.format(backend=dump.backend, rank=dump.rank)] = (dump.crc, dump.size, data)
            else:
                left += 1
    about = _ABOUT.format(
        format=FORMAT,
        job=bundle.job,
        attempt=bundle.attempt,
        nodes=bundle.nodes,
        verdicts="\n".join(f"{each.code}: {each.sentence}" for each in bundle.verdicts) or "no verdict",
        dumps=len(dumps),
        left=f" ({left} more were left out for their size)" if left else "",
    )
    texts = {README: printable(about, lines=True), TEXT: _text(bundle, left)}
    members = {name: _deflated(text.encode()) for name, text in texts.items()}
    return _zipped({**members, **dumps}, bundle.written)


def as_text(bundle: Bundle, most_dumps: int = MOST_DUMPS) -> str:
    """Return the archive as base64, for a log or a message."""
    return base64.b64encode(packed(bundle, most_dumps)).decode()


def _stream(dump: Dump) -> bytes:
    """Return the dump's packed bytes; empty where they, or its name, are no dump's."""
    fits = 0 <= dump.rank <= MOST_RANK and 0 <= dump.size < 1 << 31 and 0 <= dump.crc < 1 << 32
    try:
        return base64.b64decode(dump.packed) if fits and dump.backend.isalnum() else b""
    except ValueError:
        return b""


def _deflated(data: bytes) -> tuple[int, int, bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return zlib.crc32(data), len(data), packer.compress(data) + packer.flush()


def dump_of(rank: int, backend: str, data: bytes) -> Dump:
    """Return the bytes of a flight recorder, packed as they will lie in the archive."""
    crc, size, stream = _deflated(data)
    return Dump(rank, backend, size, crc, base64.b64encode(stream).decode())


def _zipped(members: dict[str, tuple[int, int, bytes]], at: float) -> bytes:
    """Return a zip of members that are deflated already, which `zipfile` would do again."""
    year, month, day, hour, minute, second = time.gmtime(min(max(at, 315532800.0), 4354819199.0))[:6]
    date = (hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day)
    out, directory = io.BytesIO(), io.BytesIO()
    for name, (crc, size, data) in members.items():
        raw, offset = name.encode(), out.tell()
        common = (20, 0x800, zipfile.ZIP_DEFLATED, *date, crc, len(data), size, len(raw), 0)
        out.write(_LOCAL.pack(b"PK\x03\x04", *common) + raw + data)
        rest = (0, 0, 0, 0o100644 << 16, offset)
        directory.write(_CENTRAL.pack(b"PK\x01\x02", 3 << 8 | 20, *common, *rest) + raw)
    index = directory.getvalue()
    end = _END.pack(b"PK\x05\x06", 0, 0, len(members), len(members), len(index), out.tell(), 0)
    return out.getvalue() + index + end


def _text(bundle: Bundle, left: int) -> str:
    tables = Tables()
    body = json.dumps(bundle, separators=(",", ":"), default=tables.plain)
    parts = {
        "frames": list(tables.frames),
        "stacks": list(tables.stacks),
        "calls": list(tables.calls),
        "groups": list(tables.groups),
        "sequences": list(tables.sequences),
        "dumps_left_out": left,
    }
    head = ",\n".join(f'"{key}":{json.dumps(part, separators=(",", ":"))}' for key, part in parts.items())
    return f'{{"format":{FORMAT},\n{head},\n"bundle":{body}}}\n'


# --- reading


def read(path: str) -> Bundle:
    """Return the bundle with its dumps. Raises OSError or ContractError."""
    with open(path, "rb") as file:
        return load(file, dumps=MOST_DUMPS)


def load(
    file: BinaryIO,
    parse: Callable[[bytes], Any] = json.loads,
    most: int = _MOST_TEXT,
    dumps: int = 0,
) -> Bundle:
    """Return the bundle in a file of either format. Raises OSError, or ContractError for any other file.

    `parse` makes values of at most `most` bytes of JSON. `dumps`: bytes of packed dumps to take along.
    """
    if file.read(2) != b"PK":
        file.seek(0)
        return codec.load(Bundle, _parsed(_bounded(file, most), parse))
    try:
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            data = _parsed(_member(archive, most), parse)
            return _with_dumps(_unpacked(data), data.get("dumps_left_out"), archive, file, dumps)
    except ContractError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, LookupError, struct.error) as error:
        raise ContractError(f"it is a broken zip archive: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # what another program has packed, or encrypted
        raise ContractError(f"it is no archive of ours: {error}") from error


def _parsed(data: bytes, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(data)
    except ContractError:
        raise
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from error


def _bounded(file: Any, most: int) -> bytes:
    data: bytes = file.read(most + 1)
    if len(data) > most:
        raise ContractError(f"it has more than {most:,} bytes of JSON")
    return data


def _check_directory(file: BinaryIO) -> None:
    """Raise ContractError for a list of members that would fill the memory: zipfile reads it whole."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _END.size))
    tail = file.read(_END.size)
    if len(tail) < _END.size or tail[:4] != b"PK\x05\x06":
        raise ContractError("it is a zip archive that is cut off")
    file.seek(max(0, size - _END.size - 20))
    if file.read(4) == b"PK\x06\x07" or _END.unpack(tail)[5] > _MOST_DIRECTORY:
        raise ContractError("it is a zip archive with more members than a bundle has")


def _member(archive: zipfile.ZipFile, most: int) -> bytes:
    try:
        info = archive.getinfo(TEXT)
    except KeyError:
        raise ContractError(f"it is a zip archive without {TEXT}") from None
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ContractError("it is packed as no bundle is")
    with archive.open(info) as member:
        return _bounded(member, most)


def _with_dumps(bundle: Bundle, left: Any, archive: zipfile.ZipFile, file: BinaryIO, most: int) -> Bundle:
    """Return the bundle with the dumps in the archive, still packed, at the nodes of their ranks.

    `left`: how many were left out before; with those that do not fit, the first node counts them.
    """
    evidence = bundle.evidence
    left = codec.load(int, left)
    by_rank: dict[int, list[Dump]] = {}
    for info in archive.infolist():
        _, _, place = info.filename.partition(FLIGHT.partition("{")[0])
        backend, _, name = place.partition("/rank_")
        if not name.isdecimal() or info.compress_type != zipfile.ZIP_DEFLATED:
            continue
        most -= info.compress_size
        if most < 0:
            left += 1
            continue
        file.seek(info.header_offset)
        *_, names, extra = _LOCAL.unpack(file.read(_LOCAL.size))
        file.seek(names + extra, io.SEEK_CUR)
        data = base64.b64encode(file.read(info.compress_size)).decode()
        rank = int(name[:9])
        by_rank.setdefault(rank, []).append(Dump(rank, backend, info.file_size, info.CRC, data))
    if evidence is None or not evidence.evidence or not (by_rank or left):
        return bundle
    nodes = [
        dataclasses.replace(node, dumps=[dump for rank in node.ranks for dump in by_rank.get(rank.rank, [])])
        for node in evidence.evidence
    ]
    nodes[0] = dataclasses.replace(nodes[0], dumps_left_out=left)
    return dataclasses.replace(bundle, evidence=dataclasses.replace(evidence, evidence=nodes))


def _unpacked(data: Any) -> Bundle:
    """Return the bundle of format 2. Raises ContractError."""
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is not int or number < FORMAT:
        raise ContractError(f"{TEXT} does not say its format")
    if number > FORMAT:
        raise ContractError(f"a newer ddplaunch wrote it, in format {number}; this one reads up to {FORMAT}")
    rows = Rows(data)
    short: codec.Short = {Frame: rows.frame, Stack: rows.stack}
    short.update({Collective: rows.collective, Group: rows.group, CallSequence: rows.sequence})
    return codec.load(Bundle, data.get("bundle"), short)
