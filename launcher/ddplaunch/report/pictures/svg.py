"""SVG elements. All their texts are printable and escaped. Colours are classes in pictures.css."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from markupsafe import Markup, escape

from ddplaunch.agent.text.printable import printable


@dataclass(frozen=True)
class Picture:
    """A drawing, and the sentences below it."""

    name: str  # of its file, such as "ranks-over-time"
    title: str
    svg: Markup
    notes: list[str]


LETTER = 6.7
"""The width of an average letter in the pictures' text, in pixels; rather too wide than too narrow."""
LINE = 16
"""Height of a line of text."""

Point = tuple[float, float]


def tag(name: str, *children: Markup, **attributes: str | float | None) -> Markup:
    """Return an element. `class_` is its class, `text_anchor` its text-anchor; None leaves it out."""
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inside = Markup("").join(children)
    head = f"<{name}{''.join(parts)}"
    return Markup(f"{head}>{inside}</{name}>" if inside else f"{head}/>")  # noqa: S704 each part is escaped


def text(content: str, x: float, y: float, class_: str = "", anchor: str | None = None) -> Markup:
    """Return one line of text that begins at `x`, or ends or is centred there."""
    shown = escape(printable(content))
    return tag("text", shown, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def title(content: str) -> Markup:
    """Return the text that appears when you point at the element around it."""
    return tag("title", escape(printable(content)))


def fitted(content: str, width: float) -> str:
    """Return as much of a text as there is room for. If it is cut, it ends in `…`."""
    most = int(width / LETTER)
    return content if len(content) <= most else f"{content[: max(most - 1, 0)]}…" if most > 1 else ""


def arrow(start: Point, end: Point, class_: str, bend: float = 0.0) -> Markup:
    """Return an arrow that passes to the left of the straight line, by `bend` pixels in the middle."""
    (x0, y0), (x1, y1) = start, end
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    turn = ((y1 - y0) / length, -(x1 - x0) / length)
    middle = ((x0 + x1) / 2 + 2 * bend * turn[0], (y0 + y1) / 2 + 2 * bend * turn[1])
    angle = math.atan2(y1 - middle[1], x1 - middle[0])
    wings = [(x1 - 9 * math.cos(angle + side), y1 - 9 * math.sin(angle + side)) for side in (-0.4, 0.4)]
    shaft = f"M{number(x0)} {number(y0)}Q{_points([middle])} {_points([end])}"
    head = f"M{_points([end])}L{_points(wings)}z"
    return tag("g", tag("path", d=shaft, class_="shaft"), tag("path", d=head, class_="head"), class_=class_)


def drawing(label: str, width: float, height: float, parts: Iterable[Markup]) -> Markup:
    """Return the whole picture. `label` is for people who cannot see it."""
    size = f"0 0 {number(width)} {number(height)}"
    return tag(
        "svg",
        *parts,
        class_="picture",
        role="img",
        aria_label=printable(label),
        width=width,
        height=height,
        viewBox=size,
    )


def alone(picture: Markup) -> str:
    """Return a picture as a file of its own, with its colours in it."""
    style = resources.files(__package__).joinpath("pictures.css").read_text("utf-8")
    head, _, rest = picture.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg">\n<style>\n{style}</style>\n{rest}\n'


def number(value: str | float) -> str:
    """Return a number with at most one decimal; a text unchanged."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _points(points: Iterable[Point]) -> str:
    return " ".join(f"{number(x)} {number(y)}" for x, y in points)
