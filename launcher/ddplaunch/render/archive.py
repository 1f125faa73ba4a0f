"""The two archives that travel with a job: the agent, and the user's `source`.

The same job must give the same bytes everywhere, so they carry no times, owners or modes of the machine that
made them.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

from ddplaunch.agent.plan import SOURCE_TIME
from ddplaunch.errors import SourceTooLargeError
from ddplaunch.plan.source import LIMIT, SourceFile


def agent_archive() -> bytes:
    """`agent.pyz`: one file that any Python >= 3.9 runs, and any older one refuses with a sentence."""
    try:
        return Path(__file__).with_name("agent.pyz").read_bytes()  # a wheel holds it
    except FileNotFoundError:
        from ddplaunch.render import agent_archive

        return agent_archive.current()


def source_archive(files: Mapping[str, SourceFile], limit: int = LIMIT) -> bytes:
    """A tar of `files`, by their POSIX paths below the ranks' working directory. Links come last.

    It is compressed only if it is larger than `limit` bytes: implementations of zlib differ in their bytes,
    and the same job should render alike everywhere. All who unpack it see by themselves which it is.
    Raises SourceTooLargeError, naming the largest file, when that does not help.
    """
    import tarfile  # few jobs have a source

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in sorted(files.items(), key=lambda each: (bool(each[1].link), each[0])):
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mtime = SOURCE_TIME
            info.size = len(file.data)
            info.mode = 0o755 if file.executable or name.endswith("/") else 0o644
            if file.link:
                info.type, info.linkname = tarfile.SYMTYPE, file.link
            elif name.endswith("/"):
                info.type = tarfile.DIRTYPE
            archive.addfile(info, io.BytesIO(file.data))
    data = buffer.getvalue()[: archive.offset]  # what follows is padding to a multiple of 10 kB, for tapes
    if len(data) > limit:
        data = gzip.compress(data, mtime=0)
    if len(data) > limit:
        name, size = max(((name, len(file.data)) for name, file in files.items()), key=lambda each: each[1])
        raise SourceTooLargeError(
            f"source: {len(files):,} files make a compressed archive of {len(data):,} bytes, and only "
            f"{limit:,} may travel with a job; the largest is {name} ({size:,} bytes)",
            hint="list only the code under `source`; put data on a volume, and large code into the image",
        )
    return data
