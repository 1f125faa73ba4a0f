"""Draws who waits for whom: a graph of ranks, in which a circle looks like one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run import blocked
from ddplaunch.agent.diagnosis.run.blocked import Block
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases
from ddplaunch.report.pictures import svg
from ddplaunch.report.pictures.svg import Picture
from ddplaunch.report.words import count, some

NAME = "who-waits-for-whom"
TITLE = "Who waits for whom"
_WIDTH = 1040
_BOX, _HIGH = 320, 46
_ROUND = 10
"""The most ranks of a circle to draw."""
_SIDE = 8
"""The most boxes to draw on one side."""
_SUPPOSED = (
    "A dashed arrow follows from the verdict: the records do not show by themselves that these ranks cannot "
    "go on without those."
)


class _Box(NamedTuple):
    x: float  # of its middle
    y: float
    head: str
    body: str
    culprit: bool

    def edge(self, towards: svg.Point) -> svg.Point:
        """Return the point on its edge that lies on the straight line from its middle."""
        dx, dy = towards[0] - self.x, towards[1] - self.y
        reach = min(
            (_BOX / 2 + 3) / abs(dx) if dx else math.inf, (_HIGH / 2 + 3) / abs(dy) if dy else math.inf
        )
        return self.x + dx * reach, self.y + dy * reach

    def drawn(self) -> Markup:
        class_ = "box culprit" if self.culprit else "box"
        left, top = self.x - _BOX / 2, self.y - _HIGH / 2
        return svg.tag(
            "g",
            svg.title(f"{self.head}: {self.body}"),
            svg.tag("rect", x=left, y=top, width=_BOX, height=_HIGH, rx=6, class_=class_),
            svg.text(svg.fitted(self.head, _BOX - 20), left + 10, top + 19, "bad" if self.culprit else ""),
            svg.text(svg.fitted(self.body, _BOX - 20), left + 10, top + 36, "quiet"),
        )


def picture(view: JobView | None, verdict: Verdict | None) -> Picture | None:
    """Return the graph; None if no living rank waits for another one."""
    if view is None or not view.waiting:
        return None
    blocks = blocked.find_blocks(view)
    circle = blocked.find_circle({rank: block.awaits for rank, block in blocks.items()})
    if circle:
        return _circle(view, [blocks[rank] for rank in circle])
    culprits = [rank for rank in (verdict.ranks if verdict else []) if rank not in view.waiting]
    return _two_sides(view, culprits, blocks) if culprits else None


def _circle(view: JobView, circle: Sequence[Block]) -> Picture:
    """Return the ranks around a circle, and below it those that wait for them."""
    shown = circle if len(circle) <= _ROUND else circle[: _ROUND - 1]
    left = len(circle) - len(shown)
    places = len(shown) + (1 if left else 0)
    wide, high = (_WIDTH - _BOX) / 2 - 40, max(60.0, 34.0 * places)
    middle = (_WIDTH / 2, high + _HIGH / 2 + 10)
    boxes = []
    for number in range(places):
        angle = 2 * math.pi * number / places + (math.pi if places == 2 else -math.pi / 2)
        x, y = middle[0] + wide * math.cos(angle), middle[1] + high * math.sin(angle)
        if number < len(shown):
            block = shown[number]
            boxes.append(_Box(x, y, _named(view, [block.rank]), f"in {block.what}", True))
        else:
            boxes.append(_Box(x, y, f"… {count(left, 'more rank')}", "each waits for the next", True))
    bend = 34.0 if places == 2 else 10.0
    arrows = [
        _way(box, after, "way circle", bend) for box, after in zip(boxes, [*boxes[1:], boxes[0]], strict=True)
    ]
    height = max(box.y for box in boxes) + _HIGH / 2 + 12
    names = " → ".join(str(block.rank) for block in [*circle, circle[0]])
    parts = [
        *arrows,
        *(box.drawn() for box in boxes),
        svg.text("a circle: each waits for the next", middle[0], middle[1] - 2, "bad", "middle"),
        svg.text(svg.fitted(names, 2 * wide - _BOX), middle[0], middle[1] + 16, "quiet", "middle"),
    ]
    others = [rank for rank in view.waiting if rank not in {block.rank for block in circle}]
    beside = _places(view, others)[:_SIDE]
    columns = 3
    for number, (what, ranks) in enumerate(beside):
        row, column = divmod(number, columns)
        x = _WIDTH / 2 + (column - (min(len(beside), columns) - 1) / 2) * (_BOX + 16)
        y = height + 40 + row * (_HIGH + 14)
        parts.append(_Box(x, y, _named(view, ranks), f"in {what}", False).drawn())
    notes = ["An arrow leads to the rank without which this one cannot go on; records of both sides show it."]
    if beside:
        parts.append(svg.text("these wait as well", middle[0], height + 8, "quiet", "middle"))
        height += 18 + ((len(beside) - 1) // columns + 1) * (_HIGH + 14)
    label = f"Who waits for whom: ranks wait in a circle, {names}."
    return Picture(NAME, TITLE, svg.drawing(label, _WIDTH, height, parts), notes)


def _two_sides(view: JobView, culprits: Sequence[int], blocks: dict[int, Block]) -> Picture:
    """Return the ranks that wait on the left, and on the right those that they wait for."""
    left, right = _places(view, view.waiting)[:_SIDE], _places(view, culprits)[:_SIDE]
    rows = max(len(left), len(right))
    height = rows * (_HIGH + 18) + 2
    here = [
        _Box(_BOX / 2 + 2, _row(number, len(left), height), _named(view, ranks), f"in {what}", False)
        for number, (what, ranks) in enumerate(left)
    ]
    there = [
        _Box(_WIDTH - _BOX / 2 - 2, _row(number, len(right), height), _named(view, ranks), what, True)
        for number, (what, ranks) in enumerate(right)
    ]
    arrows, supposed = [], False
    for box, (_, waiting) in zip(here, left, strict=True):
        for other, (_, held) in zip(there, right, strict=True):
            known = any(set(blocks[rank].awaits) & set(held) for rank in waiting if rank in blocks)
            known = known or any(view.behind(rank) for rank in held)
            supposed = supposed or not known
            arrows.append(_way(box, other, "way" if known else "way supposed", 0.0))
    label = f"Who waits for whom: {some('rank', view.waiting)} for {some('rank', culprits)}."
    notes = ["An arrow leads to the rank without which these cannot go on."]
    drawing = svg.drawing(label, _WIDTH, height, [*arrows, *(box.drawn() for box in [*here, *there])])
    return Picture(NAME, TITLE, drawing, [*notes, _SUPPOSED] if supposed else notes)


def _places(view: JobView, ranks: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return the ranks by where they are, the place with the most ranks first."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        its = view.ranks.get(rank)
        what = "no process of it was seen" if its is None else str(view.locations[rank])
        if its is not None and not its.alive:
            what = f"ended: {phrases.exited(its.exit)}" if its.exit else "gone"
        found.setdefault(what, []).append(rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _named(view: JobView, ranks: Sequence[int]) -> str:
    name = some("rank", ranks)
    nodes = view.nodes_of(list(ranks))
    on = (
        f" on {phrases.nodes(nodes, view.evidence.names)}"
        if len(nodes) == 1 and view.evidence.nodes > 1
        else ""
    )
    return name + on if len(name) < 24 else f"{count(len(ranks), 'rank')}: {name.removeprefix('ranks ')}"


def _row(number: int, of: int, height: float) -> float:
    return height * (number + 0.5) / of


def _way(start: _Box, end: _Box, class_: str, bend: float) -> Markup:
    if bend:
        first, last = _bent(start, end, bend)
        return svg.arrow(first, last, class_, bend)
    return svg.arrow(start.edge((end.x, end.y)), end.edge((start.x, start.y)), class_)


def _bent(start: _Box, end: _Box, bend: float) -> tuple[svg.Point, svg.Point]:
    """Return where a bent line leaves and arrives."""
    length = math.hypot(end.x - start.x, end.y - start.y) or 1.0
    turn = ((end.y - start.y) / length, -(end.x - start.x) / length)
    middle = ((start.x + end.x) / 2 + 2 * bend * turn[0], (start.y + end.y) / 2 + 2 * bend * turn[1])
    return start.edge(middle), end.edge(middle)
