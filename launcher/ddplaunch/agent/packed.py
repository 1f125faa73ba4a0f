"""Imports the agent from one compressed member of `agent.pyz`: together the modules take a third less.

In the archive this file lies beside the entry, which imports it before anything else of the agent.
"""

from __future__ import annotations

import json
import os
import zlib
from importlib.machinery import ModuleSpec
from itertools import accumulate
from types import ModuleType
from typing import Any, Optional, cast

MEMBER = "modules"
"""Its name. zlib unpacks it: a line of JSON, [words, {path in the archive: bytes}], and the files in order.

A character from FIRST on stands for the word of that number: the words that come most often, and whatever is
not ASCII. With them the whole is a twentieth smaller.
"""
FIRST = 0x80


class Modules:
    """Finds and loads them, once it stands on `sys.meta_path`."""

    def __init__(self, archive: str, data: bytes) -> None:
        self.archive = archive
        head, _, rest = zlib.decompress(data).partition(b"\n")
        words, sizes = cast("tuple[list[str], dict[str, int]]", json.loads(head))
        ends = list(accumulate(sizes.values()))
        self._words = {FIRST + number: word for number, word in enumerate(words)}
        self._files = {name: rest[end - sizes[name] : end] for name, end in zip(sizes, ends)}

    def find_spec(self, name: str, *_: Any) -> Optional[ModuleSpec]:
        """Part of Python's protocol of finders."""
        base = name.replace(".", "/")
        package = f"{base}/__init__.py" in self._files
        file = f"{base}/__init__.py" if package else f"{base}.py"
        if file not in self._files:
            return None
        place = os.path.join(self.archive, file)
        spec = ModuleSpec(name, cast("Any", self), origin=place, is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [os.path.dirname(place)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own kind of module will do."""

    def exec_module(self, module: ModuleType) -> None:
        """Part of Python's protocol of loaders."""
        place = str(module.__file__)
        exec(compile(self.get_data(place), place, "exec", dont_inherit=True), vars(module))  # noqa: S102

    def get_data(self, path: str) -> bytes:
        """A file of the archive, by the path that `__file__` has. Raises OSError."""
        try:
            short = self._files[os.path.relpath(path, self.archive)]
        except KeyError:
            raise OSError(f"{path} is not in {self.archive}") from None
        return short.decode("latin-1").translate(self._words).encode()

    def get_source(self, name: str) -> Optional[str]:
        """Return the module's source, for tracebacks that show lines."""
        spec = self.find_spec(name)
        return self.get_data(str(spec.origin)).decode() if spec else None
