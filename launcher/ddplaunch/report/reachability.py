"""Formats the paths that the gate tried: as a matrix for scripts, and as a picture in the HTML report.

The picture is SVG without scripts. Its colours differ in lightness as well as in hue, and bad ones are dark,
so that they are distinct for colour-blind readers and on paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from ddplaunch.agent.contract import Bundle, MeshResult
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.agent.system import phrases
from ddplaunch.report.words import count, escape, some

UNTRIED, OK, SLOW, PARTLY, REFUSED, SILENT = ".", "o", "s", "p", "r", "t"
STATES = {
    UNTRIED: "not tried",
    OK: "passes",
    SLOW: "passes slowly, or only after a retry",
    PARTLY: "passes in part: large messages or many packets are lost",
    REFUSED: "refused, reset, or answered by another program",
    SILENT: "no answer, or no route",
}
"""Meaning of each letter in `rows`, the worst last."""
_OUTCOMES = {"ok": OK, "stalled": PARTLY, "lossy": PARTLY, "timeout": SILENT, "unreachable": SILENT}
_SLOW = 1.0
"""Seconds from which a path counts as slow: a lost packet is sent again after one."""
_LETTERS = 32
"""The most nodes for which a terminal has a row each."""
_SHARP = 400
"""The most rows that a screen can show; of more nodes, several share a row."""
_SINGLE = 64
"""The most nodes for which every cell has its own title; of more, the passing cells of a row share one."""
_WIDTH = 1040
"""Approximate width of the picture in pixels; a cell has 3 to 28."""
_APART = 26
"""Least distance of two numbers on an axis, in pixels."""

Cell = tuple[int, int]


def tried(bundle: Bundle) -> dict[Cell, list[MeshResult]]:
    """Return all results by (from node, to node); the master's port counts as node 0."""
    check_ins = {each.node: each for each in bundle.check_ins}
    found: dict[Cell, list[MeshResult]] = {}
    for result in [*bundle.mesh, *paths.whole(bundle.passed, check_ins)]:
        found.setdefault((result.node, result.peer), []).append(result)
    return found


def state(results: Sequence[MeshResult]) -> str:
    """Return the letter of STATES for the worst of the results."""
    return max((_state(result) for result in results), key=list(STATES).index, default=UNTRIED)


def rows(bundle: Bundle) -> list[str]:
    """Return for each node a row with one letter of STATES per node that it may have tried."""
    cells = tried(bundle)
    return [
        "".join(state(cells.get((node, peer), ())) for peer in range(bundle.nodes))
        for node in range(bundle.nodes)
    ]


def map_lines(bundle: Bundle) -> list[str]:
    """Return the matrix as text: a row for each node that tries; in a large job, for nodes that are alike."""
    matrix = rows(bundle)
    if bundle.nodes > _LETTERS:
        return _summary(matrix)
    numbers = [str(node) for node in range(bundle.nodes)]
    width = len(numbers[-1])
    heads = ["".join(number.rjust(width)[at] for number in numbers) for at in range(width)]
    edge = len("from ") + width
    lines = [f"{'to' if at == 0 else '':<{edge}}  {head}" for at, head in enumerate(heads)]
    lines += [f"from {number:>{width}}  {row}" for number, row in zip(numbers, matrix, strict=True)]
    used = [letter for letter in STATES if any(letter in row for row in matrix)]
    return [*lines, *(f"{letter} {STATES[letter]}" for letter in used)]


def _summary(matrix: Sequence[str]) -> list[str]:
    """Return a line for all nodes whose paths have the same states, the worst first."""
    groups: dict[str, list[int]] = {}
    for node, row in enumerate(matrix):
        groups.setdefault("".join(state for state in STATES if state in row and state != UNTRIED), []).append(
            node
        )
    order = list(STATES)
    ways = sorted(groups.items(), key=lambda group: list(map(order.index, group[0][::-1])), reverse=True)
    lines = []
    for letters, nodes in ways:
        counts = Counter(letter for node in nodes for letter in matrix[node])
        states = [f"{counts[each]:,} {STATES[each].partition(':')[0]}" for each in reversed(letters)]
        lines.append(f"from {some('node', nodes)}: {', '.join(states) or 'nothing was tried'}")
    return lines


def picture(bundle: Bundle) -> str:
    """Return the matrix as SVG, with its legend; empty when no path was tried."""
    cells = tried(bundle)
    if not cells or bundle.nodes < 1:
        return ""
    step = -(-bundle.nodes // _SHARP)
    size = -(-bundle.nodes // step)
    pixels = max(3, min(28, _WIDTH // size))
    names = _names(bundle)
    grouped: dict[Cell, list[MeshResult]] = {}
    for (node, peer), results in cells.items():
        grouped.setdefault((node // step, peer // step), []).extend(results)
    states = {cell: state(results) for cell, results in grouped.items()}
    shapes = [_untried(size)]
    for row in range(size):
        columns = [column for column in range(size) if (row, column) in states]
        passing = [column for column in columns if states[row, column] == OK and bundle.nodes > _SINGLE]
        if passing:
            title = f"{_node(row, step, names)} reaches {_listed(passing, step)}"
            shapes.append(_shape(OK, "".join(_run(row, run) for run in _runs(passing)), title))
        for column in sorted(set(columns) - set(passing)):
            title = _title(grouped[row, column], (row, column), step, names)
            shapes.append(_shape(states[row, column], _run(row, (column, 1)), title))
    scale = f'<g transform="scale({pixels})" shape-rendering="crispEdges">\n' + "\n".join(shapes) + "\n</g>"
    edge = size * pixels
    legend = Counter(state(results) for results in cells.values())
    label = f"which of {bundle.nodes} nodes reaches which"
    return (
        f'<p class="quiet">Each row is a node that tries, each column a node that is tried'
        f"{f', {step} nodes in one' if step > 1 else ''}; point at a cell to read its nodes and port.</p>\n"
        f'<div class="wide"><svg class="reach" role="img" aria-label="{label}" '
        f'width="{edge + 48}" height="{edge + 24}" viewBox="-44 -20 {edge + 48} {edge + 24}">\n'
        f"{scale}\n{_axes(size, step, pixels)}\n</svg></div>\n{_legend(legend)}"
    )


def _state(result: MeshResult) -> str:
    found = _OUTCOMES.get(result.outcome, REFUSED)
    return SLOW if found == OK and (result.detail or result.seconds >= _SLOW) else found


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
    """Return the title of a cell: all results of its path, or of several paths, how many fail."""
    way = f"{_node(cell[0], step, names)} to {_node(cell[1], step, names)}"
    if step > 1:
        failed = Counter(result.outcome for result in results if result.outcome != "ok")
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in failed.items()) or "all pass"
        return f"{way}: {count(len(results), 'path')} tried, {outcomes}"
    each = [
        f"{result.address} port {result.port}{' (master)' * (result.what == paths.MASTER)}: {result.outcome}"
        + (f", {result.detail}" if result.detail else "")
        + f" in {result.seconds:.2f} s"
        for result in results
    ]
    return f"{way}: {'; '.join(each)}"


def _untried(size: int) -> str:
    """Return the background, with the diagonal."""
    diagonal = "".join(f"M{place} {place}h1v1h-1z" for place in range(size))
    ground = f'<rect class="reach-untried" width="{size}" height="{size}"/>'
    return f'{ground}\n<path class="reach-self" d="{diagonal}"/>'


def _runs(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return start and length of each run of adjacent columns."""
    groups = groupby(enumerate(columns), key=lambda pair: pair[1] - pair[0])
    runs = [[column for _, column in group] for _, group in groups]
    return [(run[0], len(run)) for run in runs]


def _run(row: int, run: tuple[int, int]) -> str:
    first, length = run
    return f"M{first} {row}h{length}v1h-{length}z"


def _shape(letter: str, outline: str, title: str) -> str:
    return f'<path class="reach-{letter}" d="{outline}"><title>{escape(title)}</title></path>'


def _axes(size: int, step: int, pixels: int) -> str:
    apart = next(each for each in (1, 2, 5, 10, 20, 50, 100) if each * pixels >= _APART)
    parts = []
    for place in range(0, size, apart):
        middle, number = (place + 0.5) * pixels, place * step
        parts.append(f'<text x="{middle}" y="-6" text-anchor="middle">{number}</text>')
        parts.append(f'<text x="-6" y="{middle}" text-anchor="end" dy=".35em">{number}</text>')
    return "\n".join(parts)


def _legend(number: Counter[str]) -> str:
    """Return the legend: each outcome in the picture, with its number of paths."""
    entries = [("untried", STATES[UNTRIED])]
    entries += [(each, f"{text}: {number[each]:,}") for each, text in STATES.items() if each in number]
    return (
        '<ul class="reach-legend">'
        + "".join(
            f'<li><svg width="14" height="14"><rect class="reach-{name}" width="14" height="14"/></svg> '
            f"{escape(text)}</li>"
            for name, text in entries
        )
        + "</ul>"
    )
