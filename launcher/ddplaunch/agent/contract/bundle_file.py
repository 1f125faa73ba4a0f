"""The bundle as a file: a zip archive that a person can open, and that torch's own tools can read in part.

docs/reference/bundle.md has the layout. In `bundle.json` each distinct frame, stack and call stands once, in
a table, and ranks refer to it by its place there. `flight/BACKEND/rank_N` is a whole flight recorder; nothing
here unpacks it. Format 1, which is still read, was the JSON of a `Bundle` alone.
"""

from __future__ import annotations

import base64
import dataclasses
import errno
import io
import json
import struct
import time
import zipfile
import zlib
from typing import Any, BinaryIO, Callable

from ddplaunch.agent.contract import Bundle, Collective, Dump, Frame, Group, Stack, codec
from ddplaunch.agent.contract.bundle_tables import MOST_RANK, Rows, Tables
from ddplaunch.agent.contract.codec import ContractError
from ddplaunch.agent.text.printable import printable

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
    short.update({Collective: rows.collective, Group: rows.group})
    return codec.load(Bundle, data.get("bundle"), short)
