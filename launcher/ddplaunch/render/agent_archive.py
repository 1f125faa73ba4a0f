"""Packs the agent: once for a wheel, and in a checkout whenever one of the agent's sources has changed.

`agent.pyz` is a zip file with three members: the entry, which Python runs; `agent/archive.py`, which imports
all the other modules; and these, compressed together. The same sources give the same bytes: no times, owners
or modes from this machine go in.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tokenize
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "agent.pyz"

_PACKAGE = Path(__file__).parents[1]
_BESIDE = ("__main__.py", "archive.py")
"""Modules of the agent that Python itself reads from the zip file."""
_MEMBER = "modules.json.xz"  # all others, where agent/archive.py reads them
_REGULAR_FILE = 0o100644
_END_MARK = b"PK\5\6"
_END_SIZE = 22


def current(package: Path = _PACKAGE) -> bytes:
    """Return the archive, for a checkout.

    Packing takes longer than the rest of `render`. So the result is kept where Python keeps its compiled
    files, and is taken from there until a source changes.
    """
    sources = _sources(package)
    head = _head(sources)
    kept = package / "__pycache__" / NAME
    with suppress(OSError):
        data = kept.read_bytes()
        if data.startswith(head) and data[-_END_SIZE:].startswith(_END_MARK):
            return data
    data = _packed(head, sources)
    with suppress(OSError):
        kept.parent.mkdir(exist_ok=True)  # not there where Python was told to keep nothing, as in many images
        kept.write_bytes(data)
    return data


def packed(package: Path = _PACKAGE) -> bytes:
    """Return the archive, packed now. Its second line is the digest of what it was made from."""
    sources = _sources(package)
    return _packed(_head(sources), sources)


def without_docs(source: str) -> str:
    """Return Python source without docstrings and comments. Every statement stays on its line."""
    lines = source.splitlines(keepends=True)
    before = tokenize.NEWLINE
    for kind, _, (row, column), (end, _), _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
        elif kind == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            lines[row - 1 : end] = [f'{lines[row - 1][:column]}""\n', *["\n"] * (end - row)]
        if kind not in (tokenize.COMMENT, tokenize.NL):
            before = kind
    return "".join(lines)


def _sources(package: Path) -> dict[str, bytes]:
    paths = sorted([package / "__init__.py", *(package / "agent").rglob("*.py")])
    return {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in paths}


def _head(sources: Mapping[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name, source in {**sources, "packer": Path(__file__).read_bytes()}.items():
        digest.update(f"{name} {len(source)}\n".encode() + source)
    return f"#!/usr/bin/env python3\n# {digest.hexdigest()}\n".encode()


def _packed(head: bytes, sources: Mapping[str, bytes]) -> bytes:
    modules = {name: without_docs(source.decode()) for name, source in sources.items()}
    members = {name: modules.pop(f"ddplaunch/agent/{name}").encode() for name in _BESIDE}
    members[_MEMBER] = lzma.compress(json.dumps(modules).encode(), preset=9)
    buffer = io.BytesIO()
    buffer.write(head)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            member = zipfile.ZipInfo(name)  # from 1980, the earliest date that a zip file can have
            member.create_system = 3  # Unix
            member.external_attr = _REGULAR_FILE << 16
            archive.writestr(member, data)
    return buffer.getvalue()
