"""The two archives that travel with a job: the agent, and the user's `source`.

Both are stored, not compressed, and carry no times, owners or modes of the machine that made them: builds of
zlib differ in the bytes they write, and the same job must give the same bytes everywhere.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
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
_REGULAR_FILE = 0o100644
_UNIX = 3


def agent_archive(package: Path = _PACKAGE) -> bytes:
    """`agent.pyz`: one file that any Python >= 3.9 runs, and any older one refuses with a sentence."""
    entry = package / "agent" / "__main__.py"
    modules = [package / "__init__.py", *(package / "agent").rglob("*.py")]
    members = {path.relative_to(package.parent).as_posix(): path for path in modules if path != entry}
    members["__main__.py"] = entry
    buffer = io.BytesIO()
    buffer.write(_INTERPRETER_LINE)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, path in sorted(members.items()):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = _UNIX
            info.external_attr = _REGULAR_FILE << 16
            archive.writestr(info, lean(path.read_text("utf-8")))
    return buffer.getvalue()


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
