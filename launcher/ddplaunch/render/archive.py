"""The two archives that travel with a job: the agent, and the user's `source`.

The same job must give the same bytes everywhere, so they carry no times, owners or modes of the machine that
made them, and are compressed only in a way in which all builds of zlib agree.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from ddplaunch.errors import SourceTooLargeError
from ddplaunch.plan.source import SourceFile
from ddplaunch.render.lean import lean

SOURCE_LIMIT = 700_000
"""Bytes of a source archive. It shares a Kubernetes ConfigMap, 1 MiB in all, with the agent and the plan; a
job file that runs on one target should run on another."""

_PACKAGE = Path(__file__).parents[1]
_INTERPRETER_LINE = b"#!/usr/bin/env python3\n"
_ENTRY = "__main__.py"
_NEW_YEAR_1980 = (0, 1 << 5 | 1)
_REGULAR_FILE = 0o100644
_UNIX = 3 << 8 | 20
_MOST_MEMORY = 9  # keeps a file of up to 32 kB in one block, which has one optimal code


def agent_archive(package: Path = _PACKAGE) -> bytes:
    """`agent.pyz`: one file that any Python >= 3.9 runs, and any older one refuses with a sentence."""
    entry = package / "agent" / _ENTRY
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    members = {path.relative_to(package.parent).as_posix(): path for path in modules if path != entry}
    members[_ENTRY] = entry
    texts = {name: lean(path.read_text("utf-8")).encode() for name, path in sorted(members.items())}
    return _INTERPRETER_LINE + _zip(texts, offset=len(_INTERPRETER_LINE))


def _zip(members: Mapping[str, bytes], offset: int) -> bytes:
    """A zip archive that begins `offset` bytes into its file. The standard module packs in one way only."""
    bodies, directory = [], []
    for name, data in members.items():
        # The entry has to speak where zlib is missing.
        method, packed = (0, data) if name == _ENTRY else (zlib.DEFLATED, _deflate(data))
        sizes = (zlib.crc32(data), len(packed), len(data), len(name))
        body = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, method, *_NEW_YEAR_1980, *sizes, 0)
        place = (0, 0, 0, 0, _REGULAR_FILE << 16, offset)
        entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", _UNIX, 20, 0, method, *_NEW_YEAR_1980, *sizes, *place)
        bodies.append(body + name.encode() + packed)
        directory.append(entry + name.encode())
        offset += len(bodies[-1])
    size, count = sum(map(len, directory)), len(directory)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, offset, 0)
    return b"".join([*bodies, *directory, end])


def _deflate(data: bytes) -> bytes:
    # Builds of zlib differ in how they search for repetitions. Without the search they all write the same.
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, _MOST_MEMORY, zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


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
    data = buffer.getvalue()
    if len(data) > limit:
        name, size = max(((name, len(file.data)) for name, file in files.items()), key=lambda each: each[1])
        raise SourceTooLargeError(
            f"source: {len(files)} files make an archive of {len(data):,} bytes, and only {limit:,} may "
            f"travel with a job; the largest is {name} ({size:,} bytes)",
            hint="list only the code under `source`; put data on a volume, and large code into the image",
        )
    return data
