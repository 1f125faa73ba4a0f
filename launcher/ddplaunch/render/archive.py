"""The two archives that travel with a job: the agent, and the user's `source`.

The same job must give the same bytes everywhere, so they carry no times, owners or modes of the machine that
made them, and no compression that its libraries decide upon.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ddplaunch.errors import SourceTooLargeError
from ddplaunch.plan.source import SourceFile
from ddplaunch.render.deflate import deflate
from ddplaunch.render.lean import lean

SOURCE_LIMIT = 700_000
"""Bytes of a source archive. It shares a Kubernetes ConfigMap, 1 MiB in all, with the agent and the plan; a
job file that runs on one target should run on another."""

_PACKAGE = Path(__file__).parents[1]
_PACKERS = [Path(__file__).with_name(name) for name in ("archive.py", "deflate.py", "lean.py")]
_ENTRY = "__main__.py"
_FINDER = "packed.py"  # beside the entry, as it finds all others
_MODULES = "modules"  # those, by the name that the finder knows
_NEW_YEAR_1980 = (0, 1 << 5 | 1)
_REGULAR_FILE = 0o100644
_UNIX = 3 << 8 | 20
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\5\6"


def agent_archive(package: Path = _PACKAGE) -> bytes:
    """`agent.pyz`: one file that any Python >= 3.9 runs, and any older one refuses with a sentence.

    Its second line is the digest of what it was made from. Packing takes longer than the rest of `render`, so
    the result is kept where Python keeps what it compiles, and is taken from there until a source changes.
    """
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    paths = {path.relative_to(package.parent).as_posix(): path for path in modules}
    sources = {name: path.read_bytes() for name, path in sorted(paths.items())}
    digest = _digest([*sources.items(), *((path.name, path.read_bytes()) for path in _PACKERS)])
    head = f"#!/usr/bin/env python3\n# {digest}\n".encode()

    kept = package / "__pycache__" / "agent.pyz"
    with suppress(OSError):
        data = kept.read_bytes()
        if data.startswith(head) and data[-_END.size :].startswith(_END_MARK):
            return data
    data = head + _zip(_members(sources), offset=len(head))
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)  # not there where Python was told to keep nothing, as in many images
        kept.write_bytes(data)
    return data


def _digest(sources: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, source in sources:
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _members(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the zip file holds: Python finds the entry and the finder by itself, and the finder all others."""
    files = {name: lean(source.decode()).encode() for name, source in sources.items()}
    first = {name: files.pop(f"ddplaunch/agent/{name}") for name in (_ENTRY, _FINDER)}
    head = json.dumps({name: len(data) for name, data in files.items()}, separators=(",", ":")).encode()
    return dict(sorted({**first, _MODULES: b"".join([head, b"\n", *files.values()])}.items()))


def _zip(members: Mapping[str, bytes], offset: int) -> bytes:
    """A zip archive that begins `offset` bytes into its file; the standard module would pack with zlib."""
    bodies, directory = [], []
    for name, data in members.items():
        # The entry has to speak where zlib is missing.
        method, packed = (0, data) if name == _ENTRY else (8, deflate(data))
        sizes = (zlib.crc32(data), len(packed), len(data), len(name))
        body = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, method, *_NEW_YEAR_1980, *sizes, 0)
        place = (0, 0, 0, 0, _REGULAR_FILE << 16, offset)
        entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", _UNIX, 20, 0, method, *_NEW_YEAR_1980, *sizes, *place)
        bodies.append(body + name.encode() + packed)
        directory.append(entry + name.encode())
        offset += len(bodies[-1])
    size, count = sum(map(len, directory)), len(directory)
    return b"".join([*bodies, *directory, _END.pack(_END_MARK, 0, 0, count, count, size, offset, 0)])


def source_archive(files: Mapping[str, SourceFile], limit: int = SOURCE_LIMIT) -> bytes:
    """A tar of `files`, by their POSIX paths below the job's folder.

    Raises SourceTooLargeError, naming the largest file, when the archive is larger than `limit` bytes.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size = len(file.data)
            info.mode = 0o755 if file.executable else 0o644
            archive.addfile(info, io.BytesIO(file.data))
    data = buffer.getvalue()[
        : archive.offset
    ]  # behind its end it is filled up to a multiple of 10 kB, for tapes
    if len(data) > limit:
        name, size = max(((name, len(file.data)) for name, file in files.items()), key=lambda each: each[1])
        raise SourceTooLargeError(
            f"source: {len(files)} files make an archive of {len(data):,} bytes, and only {limit:,} may "
            f"travel with a job; the largest is {name} ({size:,} bytes)",
            hint="list only the code under `source`; put data on a volume, and large code into the image",
        )
    return data
