"""Imports the agent from one compressed member of `agent.pyz`: together the modules take a third less.

In the archive this file is beside the entry, which imports it before all other modules of the agent.
"""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

try:
    from bz2 import decompress
except ImportError:  # this Python was built on a machine without the headers of bzip2
    from unpack_bz2 import decompress  # type: ignore[import-not-found, no-redef]

MEMBER = "modules"
"""The member's name. bzip2 unpacks it: the path and the text of each file in turn, with a NUL between all."""


class Modules:
    """Finds and loads the agent's modules, once it is on `sys.meta_path`."""

    def __init__(self, archive: str, data: bytes) -> None:
        self.archive = archive
        parts = decompress(data).split(b"\0")
        self._files = {name.decode(): text for name, text in zip(parts[::2], parts[1::2])}

    def find_spec(self, name: str, *_: Any) -> Optional[ModuleSpec]:
        """Return the module's spec, by Python's protocol of finders."""
        base = name.replace(".", "/")
        package = f"{base}/__init__.py" in self._files
        file = f"{base}/__init__.py" if package else f"{base}.py"
        if file not in self._files:
            return None
        place = os.path.join(self.archive, file)
        loader: Any = self
        spec = ModuleSpec(name, loader, origin=place, is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(place)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, by Python's protocol of loaders."""
        place = str(module.__file__)
        exec(compile(self.get_data(place), place, "exec", dont_inherit=True), vars(module))  # noqa: S102

    def get_data(self, path: str) -> bytes:
        """Return a file of the archive, by a path as in `__file__`. Raises OSError."""
        try:
            return self._files[os.path.relpath(path, self.archive)]
        except KeyError:
            raise OSError(f"{path} is not in {self.archive}") from None

    def get_source(self, name: str) -> Optional[str]:
        """Return the module's source, for tracebacks that show lines."""
        spec = self.find_spec(name)
        return self.get_data(str(spec.origin)).decode() if spec else None
