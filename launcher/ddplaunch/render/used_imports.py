"""Python source without the names that it imports for annotations alone, which `minify` has taken away."""

from __future__ import annotations

import re
from typing import Final

_IMPORT: Final = re.compile(
    r"^(?P<margin>\t*)from (?P<module>\S+) import (?P<names>\([^()]*\)|[^(\n]+)$", re.MULTILINE
)
_ANNOTATION: Final = re.compile(r"^\t*\w+: ", re.MULTILINE)
"""Matches the annotation of a field or a variable. An entry of a dictionary may match too: then an import
stays that nothing needs."""


def keep_used(source: str) -> str:
    """Return `source`, every statement on its line, without what it imports by `from` and mentions nowhere.

    A package's `__init__.py` imports names for others: it must not come here.
    """

    def shorter(found: re.Match[str]) -> str:
        names = [name.strip() for name in found["names"].strip("()").split(",") if name.strip()]
        rest = source[: found.start()] + source[found.end() :]
        if found["module"] == "__future__":
            used = names if _ANNOTATION.search(rest) else []
        else:
            used = [name for name in names if re.search(rf"\b{name.split()[-1]}\b", rest)]
        if used == names:
            return found[0]
        kept = f"from {found['module']} import {', '.join(used)}" if used else ""
        # A block, of `if TYPE_CHECKING` for instance, must not be empty.
        line = found["margin"] + (kept or "pass") if found["margin"] else kept
        return line + "\n" * found[0].count("\n")

    return _IMPORT.sub(shorter, source)
