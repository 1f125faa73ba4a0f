"""The shape of every picture: a drawing with its name, its heading and its notes."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """A drawing, and the sentences below it."""

    name: str  # of its file: "ranks-over-time"
    title: str
    svg: Markup
    notes: list[str]
