"""Packs the agent: once for a wheel, and in a checkout whenever a source of the agent has changed.

The same sources give the same bytes, whatever machine packs them: no times, owners or modes go in, and zopfli
compresses alike everywhere, which zlib's builds do not.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ddplaunch.render.minify import minify

_PACKAGE = Path(__file__).parents[1]
_PACKERS = [Path(__file__), Path(__file__).with_name("minify.py")]
_JOIN = ("key", "launchers", "munge", "prepare", "run", "spot")
ARCHIVES: Final = {
    "agent.pyz": (),
    "agent-for-pods.pyz": (
        "slurm",
        "local",
        "supervisor/mpi_wrapper.py",
        "platforms/hostlist.py",
        "platforms/scheduler_variables.py",
        *(f"join/{name}.py" for name in _JOIN),
    ),
}
"""File names, with the folders and modules of the agent that each leaves out."""
_ENTRY = "__main__.py"
_FINDER = "packed.py"  # beside the entry, as it finds all others
_MODULES = "modules"  # those, by the name that the finder knows
_WORD = re.compile(r" ?[A-Za-z_]\w{2,}[ (=.]?", re.ASCII)
_FIRST = 0x80  # as the finder has it
_CODES = 256 - _FIRST
_REGULAR_FILE = 0o100644
_END_MARK = b"PK\5\6"
_END_SIZE = 22


def current(name: str, package: Path = _PACKAGE) -> bytes:
    """The archive of that name, for a checkout.

    Packing takes longer than the rest of `render`, so the result is kept where Python keeps what it compiles,
    and is taken from there until a source changes.
    """
    sources = _sources(name, package)
    head = _head(sources)
    kept = package / "__pycache__" / name
    with suppress(OSError):
        data = kept.read_bytes()
        if data.startswith(head) and data[-_END_SIZE:].startswith(_END_MARK):
            return data
    data = _packed(head, sources)
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)  # not there where Python was told to keep nothing, as in many images
        kept.write_bytes(data)
    return data


def packed(name: str, package: Path = _PACKAGE) -> bytes:
    """The archive of that name, packed now. Its second line is the digest of what it was made from."""
    sources = _sources(name, package)
    return _packed(_head(sources), sources)


def _sources(name: str, package: Path) -> dict[str, bytes]:
    left_out = {package / "agent" / each for each in ARCHIVES[name]}
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    modules = [path for path in modules if left_out.isdisjoint([path, *path.parents])]
    paths = {path.relative_to(package.parent).as_posix(): path for path in modules}
    return {name: path.read_bytes() for name, path in sorted(paths.items())}


def _head(sources: Mapping[str, bytes]) -> bytes:
    digest = _digest([*sources.items(), *((path.name, path.read_bytes()) for path in _PACKERS)])
    return f"#!/usr/bin/env python3\n# {digest}\n".encode()


def _digest(sources: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, source in sources:
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _packed(head: bytes, sources: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    buffer.write(head)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in sorted(_members(sources).items()):
            member = zipfile.ZipInfo(name)  # of 1980: the earliest date that there is
            member.create_system = 3  # Unix
            member.external_attr = _REGULAR_FILE << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def _members(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the zip file's members: Python finds the entry and the finder, and the finder all others."""
    import zopfli.zlib

    texts = {name: minify(source.decode()) for name, source in sources.items()}
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
    return {**first, _MODULES: zopfli.zlib.compress(b"".join([head, b"\n", *files.values()]))}


def _words(text: str) -> list[str]:
    """Return what one character shall stand for: all that is not ASCII, and the words that save most."""
    beyond = sorted({each for each in text if ord(each) >= _FIRST})
    counts = Counter(_WORD.findall(text))
    saving = sorted(counts, key=lambda word: (-(len(word) - 1) * counts[word], word))
    return [*beyond, *saving[: _CODES - len(beyond)]]
