"""ARCHITECTURE.md draws the package as its imports are."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "launcher" / "ddplaunch"
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
NO_ROOMS = {"__main__", "__version__", "agent", "agent.__main__", "agent.archive"}
"""Modules beside the rooms: the entry of the archive, and the version."""


def room(module: str) -> str:
    """The package below ddplaunch, or below ddplaunch.agent, that holds `module`."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["agent"] else 1])


@cache
def imports() -> dict[str, set[str]]:
    """Which room imports which, from the sources."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        here = room(
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        )
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found[here] |= {room(name) for name in names if name.startswith("ddplaunch.")}
    return {
        here: {to for to in rooms if to not in NO_ROOMS | {here, ""}}
        for here, rooms in found.items()
        if here not in NO_ROOMS | {""}
    }


def drawn(page: str) -> set[tuple[str, str]]:
    """The arrows of the picture."""
    picture = page.partition("```mermaid")[2].partition("```")[0]
    chains = [line.strip().split(" --> ") for line in picture.splitlines() if "-->" in line]
    return {pair for chain in chains for pair in pairwise(chain)}


def reached(start: str, arrows: set[tuple[str, str]]) -> set[str]:
    """All rooms to which arrows lead from `start`."""
    found: set[str] = set()
    left = [start]
    while left:
        here = left.pop()
        new = {to for source, to in arrows if source == here} - found
        found |= new
        left += new
    return found


def wrong(page: str) -> list[str]:
    """What the picture and its table say that the sources do not, and the other way round."""
    arrows, real = drawn(page), imports()
    rooms = {room for pair in arrows for room in pair}
    listed = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    return sorted(
        [f"no import: {source} -> {to}" for source, to in arrows if to not in real.get(source, ())]
        + [f"not drawn: {here} -> {to}" for here in real for to in real[here] - reached(here, arrows)]
        + [f"not drawn: {room}" for room in real.keys() - rooms]
        + [f"not in the table: {room}" for room in rooms - listed - {"agent.cli"}]
        + [f"no such room: {room}" for room in listed - rooms]
    )


def test_the_picture_is_what_the_imports_are() -> None:
    """Each arrow is an import, and each import follows arrows."""
    assert [] == wrong(PAGE)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("agent.supervisor --> agent.hub", "agent.supervisor", "not drawn: agent.supervisor -> agent.hub"),
        ("cli --> agent.join\n", "cli --> agent.hook\n", "no import: cli -> agent.hook"),
        ("| `agent.text` |", "| text |", "not in the table: agent.text"),
        ("| `spec` |", "| `specs` |", "no such room: specs"),
    ],
)
def test_a_wrong_picture_is_found(old: str, new: str, complaint: str) -> None:
    """A missing arrow, one that is no import, and a room that is missing or does not exist."""
    assert old in PAGE
    assert complaint in wrong(PAGE.replace(old, new, 1))
