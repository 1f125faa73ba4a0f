"""Imports the agent's modules from `agent.pyz`, where this file is next to the entry. Only the entry uses it.

Python can read modules from a zip file by itself, but compressed one by one they take 1.8 times the space,
and the agent has to fit into a ConfigMap and, twice, into a Helm release. So they are compressed together and
unpacked into memory.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any, Optional
from zlib import crc32

MEMBER = "modules.json.xz"
"""A JSON object with the text of each module, by its path. `render/agent_archive.py` writes it."""

COMPILED = "compiled"
"""A folder beside the archive. Where there is one, it keeps what Python compiles for the next process.

The local backend makes it: there, four processes start one after another before the command does. It may hold
files of other versions of Python, which differ in name, and of ddplaunch, which are replaced.
"""


class Module(SourceFileLoader):
    """Loads one module. `sys.meta_path` holds the class, which finds them."""

    archive = ""
    compiled = ""  # the folder COMPILED, if there is one
    sources: dict[str, bytes] = {}  # noqa: RUF012 - by their paths below the archive's

    @classmethod
    def find_spec(cls, name: str, *_: Any) -> Optional[ModuleSpec]:
        """Return the module's spec, as Python's protocol of finders requires."""
        base = os.path.join(cls.archive, *name.split("."))
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):
            if path in cls.sources:
                return spec_from_file_location(name, path, loader=cls(name, path))
        return None

    def get_data(self, path: str) -> bytes:
        """Return a file of the archive, or what is kept of its compilation, by a path as in `__file__`.

        Raises OSError.
        """
        if self.compiled and path.endswith(".pyc"):
            with open(self._kept(path), "rb") as file:
                return file.read()
        try:
            return self.sources[path]
        except KeyError:
            raise OSError(f"{path} is not in {self.archive}") from None

    def path_stats(self, path: str) -> dict[str, int]:
        """Return what tells whether a compiled file is of this source: its sum in place of a time.

        Raises OSError if none are kept, and then Python neither looks for one nor makes one: a thousand nodes
        would ask a shared file system for hundreds of files that are not there.
        """
        if not self.compiled:
            raise OSError(f"there is no folder for what is compiled of {self.archive}")
        source = self.get_data(path)
        return {"mtime": crc32(source), "size": len(source)}

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Keep a compiled file. Python calls this."""
        kept = self._kept(path)
        draft = f"{kept}.{os.getpid()}"
        try:
            with open(draft, "wb") as file:
                file.write(data)
            os.replace(draft, kept)
        except OSError:  # the disk is full, say: the next process compiles anew
            with suppress(OSError):
                os.unlink(draft)

    def _kept(self, path: str) -> str:
        name = os.path.relpath(path, self.archive).replace(f"__pycache__{os.sep}", "").replace(os.sep, ".")
        return os.path.join(self.compiled, name)


def read(archive: str, member: bytes) -> None:
    """Let `Module` find what this member of the archive holds. Raises OSError if there is neither lzma nor
    xz.
    """
    try:
        from lzma import decompress
    except ImportError:  # this Python was built without liblzma's headers; few machines have no xz
        text = subprocess.run(["xz", "--decompress"], input=member, stdout=subprocess.PIPE, check=True).stdout
    else:
        text = decompress(member)
    Module.archive = archive
    compiled = os.path.join(os.path.dirname(archive), COMPILED)
    Module.compiled = compiled if os.path.isdir(compiled) else ""
    Module.sources = {
        os.path.join(archive, name): source.encode() for name, source in json.loads(text).items()
    }
