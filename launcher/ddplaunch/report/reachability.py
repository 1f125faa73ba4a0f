"""Shows the paths that the gate tried: as a matrix for scripts, and as a picture for people.

The picture is SVG without scripts. Its colours differ in lightness as well as in hue, and dark on light means
bad, so that they can be told apart by everybody, and on paper.
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
    SLOW: "passes slowly, or not at the first try",
    PARTLY: "passes in part: large messages, or many packets, vanish",
    REFUSED: "refused, reset, or a stranger answers",
    SILENT: "no answer, or no way",
}
"""By the letter that stands for it in `rows`, the worst last."""
_OUTCOMES = {"ok": OK, "stalled": PARTLY, "lossy": PARTLY, "timeout": SILENT, "unreachable": SILENT}
_SLOW = 1.0
"""Seconds from which a path is slow: a lost packet is sent again after one."""
_SHARP = 400
"""Rows that can be told apart on a screen; of more nodes, several share one."""
_SINGLE = 64
"""Nodes up to which every cell says for itself what it is, else those of a row that pass do so together."""
_WIDTH = 1040
"""Pixels of the picture, about; a cell has 3 to 28."""
_APART = 26
"""Pixels between two numbers on an axis, at least."""

Cell = tuple[int, int]


def tried(bundle: Bundle) -> dict[Cell, list[MeshResult]]:
    """Return all results by (from node, to node); the master's port counts as node 0."""
    check_ins = {each.node: each for each in bundle.check_ins}
    found: dict[Cell, list[MeshResult]] = {}
    for result in [*bundle.mesh, *paths.whole(bundle.passed, check_ins)]:
        found.setdefault((result.node, result.peer), []).append(result)
    return found


def state(results: Sequence[MeshResult]) -> str:
    """A letter of STATES: the worst of them."""
    return max((_state(result) for result in results), key=list(STATES).index, default=UNTRIED)


def rows(bundle: Bundle) -> list[str]:
    """Return for each node a row with one letter of STATES per node that it may have tried."""
    cells = tried(bundle)
    return [
        "".join(state(cells.get((node, peer), ())) for peer in range(bundle.nodes))
        for node in range(bundle.nodes)
    ]


def picture(bundle: Bundle) -> str:
    """The matrix as SVG, with its legend; empty when nothing was tried."""
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
    """Return the hosts' names, where there are several."""
    hosts = {each.node: each.host for each in bundle.check_ins}
    found = [hosts.get(node, "") for node in range(bundle.nodes)]
    return found if len(set(found)) > 1 else []


def _node(row: int, step: int, names: Sequence[str]) -> str:
    return phrases.node(row, names) if step == 1 else phrases.nodes(range(row * step, row * step + step))


def _listed(columns: Sequence[int], step: int) -> str:
    return some("node", [node for column in columns for node in range(column * step, column * step + step)])


def _title(results: Sequence[MeshResult], cell: Cell, step: int, names: Sequence[str]) -> str:
    """Return all that is known of one path; of several in one cell, how many fail."""
    way = f"{_node(cell[0], step, names)} to {_node(cell[1], step, names)}"
    if step > 1:
        failed = Counter(result.outcome for result in results if result.outcome != "ok")
        said = ", ".join(f"{number} {outcome}" for outcome, number in failed.items()) or "all pass"
        return f"{way}: {count(len(results), 'path')} tried, {said}"
    each = [
        f"{result.address} port {result.port}{' (master)' * (result.what == paths.MASTER)}: {result.outcome}"
        + (f", {result.detail}" if result.detail else "")
        + f" in {result.seconds:.2f} s"
        for result in results
    ]
    return f"{way}: {'; '.join(each)}"


def _untried(size: int) -> str:
    """The ground, and the nodes themselves on it."""
    diagonal = "".join(f"M{place} {place}h1v1h-1z" for place in range(size))
    ground = f'<rect class="reach-untried" width="{size}" height="{size}"/>'
    return f'{ground}\n<path class="reach-self" d="{diagonal}"/>'


def _runs(columns: Sequence[int]) -> list[tuple[int, int]]:
    """First and length of each row of neighbours."""
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
    """Return the legend of the outcomes in the picture, with the number of paths of each."""
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
