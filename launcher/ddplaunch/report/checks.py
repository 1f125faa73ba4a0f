"""Formats the gate's results as a table: one line for each check and result, for any number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Bundle, Status
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report.paint import PLAIN, Paint
from ddplaunch.report.words import count, some

_LISTED = 20
"""The most failed connections that are listed: without a rack there are thousands."""
_MOST_TEXTS = 8
"""The most different texts of one check that are listed: hundreds of nodes measure hundreds of loads."""
_OTHER_TEXTS = "similar, with other values"
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNKNOWN: "unknown"}


class Finding(NamedTuple):
    """Nodes with the same result of a check."""

    check: str
    status: str
    text: str
    hint: str
    nodes: list[int]


def findings(bundle: Bundle) -> list[Finding]:
    """Return the findings in the order of the checks, one for all nodes that passed a check.

    Of many different texts of a failed check, the first ones are kept.
    """
    kept: dict[tuple[str, str], list[Finding]] = {}
    for each in all_findings(bundle):
        if each.status == Status.PASS:
            each = each._replace(text="", hint="")
        same = kept.setdefault((each.check, each.status), [])
        if same and (each.status == Status.PASS or len(same) > _MOST_TEXTS):
            same[-1] = same[-1]._replace(nodes=sorted({*same[-1].nodes, *each.nodes}))
        else:
            same.append(each if len(same) < _MOST_TEXTS else each._replace(text=_OTHER_TEXTS))
    return [each for same in kept.values() for each in same]


def all_findings(bundle: Bundle) -> list[Finding]:
    """Return a finding for each different text of each check."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for check_in in bundle.check_ins:
        for check in check_in.checks:
            text = check.observed + (f"; wanted {check.wanted}" if check.wanted else "")
            name, status, text, hint = map(printable, (check.check, check.status, text, check.hint))
            found.setdefault((name, status, text, hint), []).append(check_in.node)
    order = list(dict.fromkeys(name for name, *_ in found))
    whole = [Finding(*key, nodes) for key, nodes in found.items()]
    return sorted(whole, key=lambda each: order.index(each.check))


def checks_text(bundle: Bundle, paint: Paint = PLAIN, names: Sequence[str] = ()) -> str:
    """Return the checks in their order, then the connections between nodes, and the smoke test."""
    found = findings(bundle)
    tone = {Status.PASS: paint.good, Status.FAIL: paint.bad, Status.UNKNOWN: paint.odd}
    width = max((len(each.check) for each in found), default=0)
    lines = []
    for check, status, text, hint, nodes in found:
        word = tone.get(status, paint.odd)(f"{_SHOWN.get(status, status):<7}")
        where = some("node", nodes) if status == Status.PASS else phrases.nodes(nodes, names)
        lines.append(f"{check:<{width}}  {word}  {where}" + (f": {text}" if text else ""))
        if hint:
            lines.append(f"{'':<{width}}           hint: {hint}")
    lines += _mesh(bundle, paint, names)
    lines += [printable(event.text) for event in bundle.events if event.kind == "smoke"]
    return "\n".join(lines)


def _mesh(bundle: Bundle, paint: Paint, names: Sequence[str]) -> list[str]:
    mesh = sorted(bundle.mesh, key=lambda result: (result.node, result.peer))
    failed = [result for result in mesh if result.outcome != "ok"]
    number = len(bundle.mesh) + sum(map(len, bundle.passed.values()))
    lines = [
        paint.bad(
            f"{phrases.node(each.node, names)} to {phrases.node(each.peer, names)}, "
            + printable(f"{each.address}:{each.port}: {each.outcome}")
        )
        + (f" ({printable(each.detail)})" if each.detail else "")
        for each in failed[:_LISTED]
    ]
    if number:
        more = f", {_LISTED} of them above" if len(failed) > _LISTED else ""
        lines.append(f"{count(number, 'connection')} between nodes tried, {len(failed)} failed{more}")
    return lines
