"""Inputs that once brought a bug to light.

They are kept as they were, for a seed means another input when the mutations change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).with_name("found")


class Found(NamedTuple):
    """One of them."""

    target: str
    name: str
    given: Any


def every() -> list[Found]:
    """In the order of their names."""
    return [
        Found(path.parent.name, path.stem, json.loads(path.read_text("ascii")))
        for path in sorted(FOLDER.glob("*/*.json"))
    ]


def keep(target: str, name: str, given: Any) -> Path:
    """Add one. Returns its file."""
    path = FOLDER / target / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(given) + "\n", "ascii")
    return path
