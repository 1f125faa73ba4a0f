"""Draws which node reaches which, from the paths that the gate tried, with the cuts bracketed and named.

The colours differ in lightness as well as in hue, and bad ones are dark, so that colour-blind readers and
readers on paper can tell them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from markupsafe import Markup

from ddplaunch.agent.contract import Bundle, MeshResult
from ddplaunch.agent.diagnosis.gate import partitions, paths
from ddplaunch.agent.diagnosis.gate.partitions import Partition
from ddplaunch.agent.system import phrases
from ddplaunch.report import gate_results
from ddplaunch.report.gate_results import OK, STATES, UNTRIED, Cell, has_failed, path_state, tried_paths
from ddplaunch.report.pictures import svg
from ddplaunch.report.pictures.svg import Picture
from ddplaunch.report.words import count, some

NAME = "reachability"
TITLE = "Which node reaches which"
_SHARP = 400
"""The most rows that a screen can show. With more nodes, several share a row."""
_SINGLE = 64
"""The most nodes with which every cell has its own title. With more, the passing cells of a row share one."""
_WIDTH = 880
"""Approximate width of the matrix in pixels; a cell has 3 to 28."""
_APART = 26
"""The least distance between two numbers on an axis, in pixels."""
_CUTS = 4
"""The most cuts to bracket."""
_SPANS = 8
"""The most rows of numbers to bracket on a cut's side."""
_LEFT, _TOP = 44, 20

Span = tuple[int, int]
"""The place and the length of adjacent rows or columns."""


def picture(bundle: Bundle) -> Picture | None:
    """Return the matrix; None if no path was tried."""
    cells = tried_paths(bundle)
    if not cells or bundle.nodes < 1:
        return None
    step = -(-bundle.nodes // _SHARP)
    size = -(-bundle.nodes // step)
    pixels = max(3, min(28, _WIDTH // size))
    edge = size * pixels
    names = _names(bundle)
    cuts = _cuts(cells, bundle.nodes)
    brackets, below = _brackets(cuts[:_CUTS], step, pixels, edge, names)
    scale = f"translate({_LEFT} {_TOP}) scale({pixels})"
    matrix = svg.tag(
        "g", *_cells(cells, step, size, names), transform=scale, shape_rendering="crispEdges", class_="reach"
    )
    legend = list(
        _legend(Counter(path_state(results) for results in cells.values()), _TOP + edge + below + 24)
    )
    height = _TOP + edge + below + 24 + 20 * len(legend)
    width = max(_LEFT + edge + (150 if cuts else 8), 420)
    sentences = [_sentence(cut, names) for cut in cuts[:_CUTS]]
    label = f"Which of {bundle.nodes} nodes reaches which. {' '.join(sentences)}".strip()
    drawing = svg.drawing(label, width, height, [matrix, *_axes(size, step, pixels), *brackets, *legend])
    notes = [
        *sentences,
        *(f"{each[0].upper()}{each[1:]}." for each in gate_results.link_lines(bundle, names)),
    ]
    if len(cuts) > _CUTS:
        notes.append(f"{count(len(cuts) - _CUTS, 'more cut')} are not bracketed.")
    notes.append(
        "Each row is a node that tries, each column a node that is tried"
        f"{f', {step} nodes in one' if step > 1 else ''}; point at a cell to read its nodes and port."
    )
    return Picture(NAME, TITLE, drawing, notes)


def _cuts(cells: Mapping[Cell, Sequence[MeshResult]], nodes: int) -> list[Partition]:
    """Return the fewest cuts that explain the failed paths."""
    lost = {cell for cell, results in cells.items() if has_failed(results) and cell[0] != cell[1]}
    passed = {cell for cell in cells if cell not in lost and cell[0] != cell[1]}
    return partitions.describe(lost, passed, nodes).partitions if lost else []


def _sentence(cut: Partition, names: Sequence[str]) -> str:
    sources, targets = (phrases.nodes(side, names) for side in (cut.sources, cut.targets))
    if cut.both:
        return f"Cut: of the paths that were tried, none passes between {sources} and {targets}."
    return f"Cut: of the paths that were tried, none passes from {sources} to {targets}."


def _brackets(
    cuts: Sequence[Partition], step: int, pixels: int, edge: int, names: Sequence[str]
) -> tuple[list[Markup], int]:
    """Return the cuts' outlines with brackets at the sides, and the height of the brackets below the
    matrix.
    """
    parts: list[Markup] = []
    rows: dict[Span, str] = {}
    columns: dict[Span, str] = {}
    for cut in cuts:
        ways = [(cut.sources, cut.targets), *([(cut.targets, cut.sources)] if cut.both else [])]
        for sources, targets in ways:
            down, across = _spans(sources, step), _spans(targets, step)
            if max(len(down), len(across)) > _SPANS:
                continue
            rows |= {span: _span_name(span, step, names) for span in down}
            columns |= {span: _span_name(span, step, names) for span in across}
            for row, high in down:
                for column, wide in across:
                    parts.append(
                        svg.tag(
                            "rect",
                            x=_LEFT + column * pixels,
                            y=_TOP + row * pixels,
                            width=wide * pixels,
                            height=high * pixels,
                            class_="bracket",
                        )
                    )
    right, bottom = _LEFT + edge + 6, _TOP + edge + 6
    last = -20.0
    for (row, high), name in sorted(rows.items()):
        top, middle = _TOP + row * pixels, _TOP + (row + high / 2) * pixels
        parts.append(svg.tag("path", d=f"M{right} {top}h6v{high * pixels}h-6", class_="bracket"))
        if middle - last >= 15:
            parts.append(svg.text(name, right + 14, middle + 4, "bad"))
            last = middle
    ends = 0.0
    low = lowest = 0
    for (column, wide), name in sorted(columns.items()):
        left, middle = _LEFT + column * pixels, _LEFT + (column + wide / 2) * pixels
        parts.append(svg.tag("path", d=f"M{left} {bottom}v6h{wide * pixels}v-6", class_="bracket"))
        start = max(middle - len(name) * svg.LETTER / 2, 0.0)
        low = low + 1 if start < ends else 0
        lowest = max(lowest, low)
        ends = max(ends, start + len(name) * svg.LETTER + 8)
        parts.append(svg.text(name, start, bottom + 22 + 15 * low, "bad"))
    return parts, 35 + 15 * lowest if columns else 0


def _spans(numbers: Iterable[int], step: int) -> list[Span]:
    return _runs(sorted({number // step for number in numbers}))


def _span_name(span: Span, step: int, names: Sequence[str]) -> str:
    first, length = span[0] * step, span[1] * step
    return phrases.node(first, names) if length == 1 else some("node", range(first, first + length))


def _cells(
    cells: Mapping[Cell, Sequence[MeshResult]], step: int, size: int, names: Sequence[str]
) -> Iterable[Markup]:
    grouped: dict[Cell, list[MeshResult]] = {}
    for (node, peer), results in cells.items():
        grouped.setdefault((node // step, peer // step), []).extend(results)
    states = {cell: path_state(results) for cell, results in grouped.items()}
    columns: dict[int, list[int]] = {}
    for row, column in sorted(states):
        columns.setdefault(row, []).append(column)
    yield from _untried(size)
    for row, its in columns.items():
        passing = [column for column in its if states[row, column] == OK and size * step > _SINGLE]
        if passing:
            title = f"{_node(row, step, names)} reaches {_listed(passing, step)}"
            yield _shape(OK, "".join(_run(row, run) for run in _runs(passing)), title)
        for column in sorted(set(its) - set(passing)):
            title = _title(grouped[row, column], (row, column), step, names)
            yield _shape(states[row, column], _run(row, (column, 1)), title)


def _names(bundle: Bundle) -> list[str]:
    """Return the hosts' names; none if all nodes are on one host."""
    hosts = {each.node: each.host for each in bundle.check_ins}
    found = [hosts.get(node, "") for node in range(bundle.nodes)]
    return found if len(set(found)) > 1 else []


def _node(row: int, step: int, names: Sequence[str]) -> str:
    return phrases.node(row, names) if step == 1 else phrases.nodes(range(row * step, row * step + step))


def _listed(columns: Sequence[int], step: int) -> str:
    return some("node", [node for column in columns for node in range(column * step, column * step + step)])


def _title(results: Sequence[MeshResult], cell: Cell, step: int, names: Sequence[str]) -> str:
    """Return the title of a cell: all results of its path or, if it has several paths, how many of them
    fail.
    """
    way = f"{_node(cell[0], step, names)} to {_node(cell[1], step, names)}"
    if step > 1:
        bad = Counter(result.outcome for result in results if result.outcome != "ok")
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in bad.items()) or "all pass"
        return f"{way}: {count(len(results), 'path')} tried, {outcomes}"
    each = [
        f"{result.address} port {result.port}{' (master)' * (result.what == paths.MASTER)}: {result.outcome}"
        + (f", {result.detail}" if result.detail else "")
        + f" in {result.seconds:.2f} s{gate_results.link_text(result)}"
        for result in results
    ]
    return f"{way}: {'; '.join(each)}"


def _untried(size: int) -> Iterable[Markup]:
    """Yield the background, with the diagonal."""
    yield svg.tag("rect", width=size, height=size, class_="reach-untried")
    diagonal = "".join(f"M{place} {place}h1v1h-1z" for place in range(size))
    yield svg.tag("path", d=diagonal, class_="reach-self")


def _runs(columns: Sequence[int]) -> list[Span]:
    """Return start and length of each run of adjacent columns."""
    groups = groupby(enumerate(columns), key=lambda pair: pair[1] - pair[0])
    runs = [[column for _, column in group] for _, group in groups]
    return [(run[0], len(run)) for run in runs]


def _run(row: int, run: Span) -> str:
    first, length = run
    return f"M{first} {row}h{length}v1h-{length}z"


def _shape(letter: str, outline: str, title: str) -> Markup:
    return svg.tag("path", svg.title(title), d=outline, class_=f"reach-{letter}")


def _axes(size: int, step: int, pixels: int) -> Iterable[Markup]:
    apart = next(each for each in (1, 2, 5, 10, 20, 50, 100) if each * pixels >= _APART)
    for place in range(0, size, apart):
        middle, number = (place + 0.5) * pixels, place * step
        yield svg.text(str(number), _LEFT + middle, _TOP - 6, "quiet", "middle")
        yield svg.text(str(number), _LEFT - 6, _TOP + middle + 4, "quiet", "end")


def _legend(number: Counter[str], y: float) -> Iterable[Markup]:
    """Yield each outcome in the picture, with its number of paths."""
    entries = [("untried", STATES[UNTRIED])]
    entries += [(each, f"{text}: {number[each]:,}") for each, text in STATES.items() if each in number]
    for place, (name, text) in enumerate(entries):
        top = y + 20 * place
        yield svg.tag(
            "g",
            svg.tag("rect", x=_LEFT, y=top - 11, width=14, height=14, class_=f"reach-{name}"),
            svg.text(text, _LEFT + 22, top, "quiet"),
        )
