"""Imports the agent's modules from `agent.pyz`, where this file is next to the entry. Only the entry uses it.

Python can read modules from a zip file by itself, but compressed one by one they take 1.8 times the space,
and the agent has to fit into a ConfigMap and, twice, into a Helm release. So they are compressed together and
unpacked into memory.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any, Optional

MEMBER = "modules.json.xz"
"""A JSON object with the text of each module, by its path. `render/agent_archive.py` writes it."""


class Module(SourceFileLoader):
    """Loads one module. `sys.meta_path` holds the class, which finds them."""

    archive = ""
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
        """Return a file of the archive, by a path as in `__file__`. Raises OSError."""
        try:
            return self.sources[path]
        except KeyError:
            raise OSError(f"{path} is not in {self.archive}") from None


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
    Module.sources = {
        os.path.join(archive, name): source.encode() for name, source in json.loads(text).items()
    }
