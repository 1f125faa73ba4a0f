"""Formats the paths that the gate tried as a matrix: for scripts, and for the picture of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddplaunch.agent.contract import Bundle, MeshResult
from ddplaunch.agent.diagnosis.gate import paths
from ddplaunch.report.words import some

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
Cell = tuple[int, int]


def tried(bundle: Bundle) -> dict[Cell, list[MeshResult]]:
    """Return all results by (from node, to node); the master's port counts as node 0."""
    check_ins = {each.node: each for each in bundle.check_ins}
    found: dict[Cell, list[MeshResult]] = {}
    for result in [*bundle.mesh, *paths.whole(bundle.passed, check_ins, bundle.links)]:
        found.setdefault((result.node, result.peer), []).append(result)
    return found


def state(results: Sequence[MeshResult]) -> str:
    """Return the letter of STATES for the worst of the results."""
    return max((_state(result) for result in results), key=list(STATES).index, default=UNTRIED)


def failed(results: Sequence[MeshResult]) -> bool:
    """Whether one of the results is no way for a job: something of it is lost, or all."""
    return state(results) in (PARTLY, REFUSED, SILENT)


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


def _state(result: MeshResult) -> str:
    found = _OUTCOMES.get(result.outcome, REFUSED)
    return SLOW if found == OK and (result.detail or result.seconds >= _SLOW) else found
