"""The two archives that travel with a job: the agent, and the user's `source`.

The same job must give the same bytes everywhere, so they carry no times, owners or modes of the machine that
made them, and no compression that its libraries decide upon.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ddplaunch.errors import SourceTooLargeError
from ddplaunch.plan.source import LIMIT, SourceFile
from ddplaunch.render.deflate import deflate
from ddplaunch.render.lean import lean

_PACKAGE = Path(__file__).parents[1]
_PACKERS = [Path(__file__).with_name(name) for name in ("archive.py", "deflate.py", "lean.py")]
_ENTRY = "__main__.py"
_FINDER = "packed.py"  # beside the entry, as it finds all others
_MODULES = "modules"  # those, by the name that the finder knows
_JOIN = ("hostlist", "key", "launchers", "munge", "prepare", "run", "scheduler", "spot")
_NOT_IN_PODS = ("slurm", "local.py", "supervise/keeper.py", *(f"join/{name}.py" for name in _JOIN))
_WORD = re.compile(r" ?[A-Za-z_]\w{2,}[ (=.]?", re.ASCII)
_FIRST = 0x80  # as the finder has it
_CODES = 256 - _FIRST
_NEW_YEAR_1980 = (0, 1 << 5 | 1)
_REGULAR_FILE = 0o100644
_UNIX = 3 << 8 | 20
_END = struct.Struct("<4s4H2LH")
_END_MARK = b"PK\5\6"


def agent_archive(package: Path = _PACKAGE, without: Sequence[str] = ()) -> bytes:
    """`agent.pyz`: one file that any Python >= 3.9 runs, and any older one refuses with a sentence.

    `without` names folders and modules of the agent that nobody needs where the archive goes.

    Its second line is the digest of what it was made from. Packing takes longer than the rest of `render`, so
    the result is kept where Python keeps what it compiles, and is taken from there until a source changes.
    """
    left_out = {package / "agent" / name for name in without}
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    modules = [path for path in modules if left_out.isdisjoint([path, *path.parents])]
    paths = {path.relative_to(package.parent).as_posix(): path for path in modules}
    sources = {name: path.read_bytes() for name, path in sorted(paths.items())}
    digest = _digest([*sources.items(), *((path.name, path.read_bytes()) for path in _PACKERS)])
    head = f"#!/usr/bin/env python3\n# {digest}\n".encode()

    kept = package / "__pycache__" / ("agent-of-pods.pyz" if without else "agent.pyz")
    with suppress(OSError):
        data = kept.read_bytes()
        if data.startswith(head) and data[-_END.size :].startswith(_END_MARK):
            return data
    data = head + _zip(_members(sources), offset=len(head))
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)  # not there where Python was told to keep nothing, as in many images
        kept.write_bytes(data)
    return data


def pod_agent_archive() -> bytes:
    """`agent.pyz` for a pod, without Slurm's hooks, MPI's launcher, `run --join` and the local backend.

    Plain `kubectl apply` keeps a copy of each object in an annotation of at most 256 KiB. This
    leaves room there for some kilobytes of source.
    """
    return agent_archive(without=_NOT_IN_PODS)


def _digest(sources: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, source in sources:
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _members(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the zip file holds: Python finds the entry and the finder by itself, and the finder all others."""
    texts = {name: lean(source.decode()) for name, source in sources.items()}
    first = {name: texts.pop(f"ddplaunch/agent/{name}").encode() for name in (_ENTRY, _FINDER)}
    words = _words("".join(texts.values()))
    numbers = {word: chr(_FIRST + number) for number, word in enumerate(words)}
    longest_first = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))
    files = {
        name: longest_first.sub(lambda match: numbers[match[0]], text).encode("latin-1")
        for name, text in texts.items()
    }
    sizes = {name: len(data) for name, data in files.items()}
    head = json.dumps([words, sizes], separators=(",", ":")).encode()
    return dict(sorted({**first, _MODULES: b"".join([head, b"\n", *files.values()])}.items()))


def _words(text: str) -> list[str]:
    """What one character shall stand for: all that is not ASCII, and the words that save most."""
    beyond = sorted({each for each in text if ord(each) >= _FIRST})
    counts = Counter(_WORD.findall(text))
    saving = sorted(counts, key=lambda word: (-(len(word) - 1) * counts[word], word))
    return [*beyond, *saving[: _CODES - len(beyond)]]


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


def source_archive(files: Mapping[str, SourceFile], limit: int = LIMIT) -> bytes:
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
