"""Formats the gate's results as a table: one line for each check and result, for any number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Bundle, Status
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report import links, measured, reachability
from ddplaunch.report.paint import PLAIN, Paint
from ddplaunch.report.words import count, some

_LISTED = 20
"""The most failed connections that are listed: without a rack there are thousands."""
_MOST_TEXTS = 8
"""The most different texts of one check that are listed: hundreds of nodes measure hundreds of loads."""
_OTHER_TEXTS = "similar, with other values"
_MOST_PASSED = 3
"""The same for a check that all of them passed."""
_ABSENT = "n/a"
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNKNOWN: "unknown"}


class Finding(NamedTuple):
    """Nodes with the same result of a check. `applies`: they had something to check."""

    check: str
    status: str
    text: str
    hint: str
    nodes: list[int]
    applies: bool = True


def findings(bundle: Bundle) -> list[Finding]:
    """Return the findings in the order of the checks, few for each check, whatever the number of nodes.

    Of nodes that passed a check and measured different numbers, one finding has the range.
    """
    kept: dict[tuple[str, str, bool], list[Finding]] = {}
    for each in all_findings(bundle):
        kept.setdefault((each.check, each.status, each.applies), []).append(each)
    return [each for same in kept.values() for each in _few(same, bundle)]


def _few(same: list[Finding], bundle: Bundle) -> list[Finding]:
    """Return the findings of one check and status: summed up, or the first ones and one of all others."""
    first, nodes = same[0], sorted({node for each in same for node in each.nodes})
    if first.status == Status.PASS and (len(same) > 1 or first.check == "clock"):
        text = measured.text(first.check, [each for each in bundle.check_ins if each.node in set(nodes)])
        if text:
            return [first._replace(text=text, nodes=nodes)]
    most = _MOST_PASSED if first.status == Status.PASS else _MOST_TEXTS
    if len(same) <= most + 1:
        return same
    others = sorted({node for each in same[most:] for node in each.nodes})
    return [*same[:most], same[most]._replace(text=_OTHER_TEXTS, nodes=others)]


def all_findings(bundle: Bundle) -> list[Finding]:
    """Return a finding for each different text of each check."""
    found: dict[tuple[str, str, str, str, bool], list[int]] = {}
    for check_in in bundle.check_ins:
        for check in check_in.checks:
            text = check.observed + (f"; wanted {check.wanted}" if check.wanted else "")
            applies = check.status != Status.PASS or measured.applies(check.check, check_in.facts)
            name, status, text, hint = map(printable, (check.check, check.status, text, check.hint))
            found.setdefault((name, status, text, hint, applies), []).append(check_in.node)
    order = list(dict.fromkeys(name for name, *_ in found))
    whole = [Finding(*key[:4], nodes, key[4]) for key, nodes in found.items()]
    return sorted(whole, key=lambda each: order.index(each.check))


def checks_text(bundle: Bundle, paint: Paint = PLAIN, names: Sequence[str] = ()) -> str:
    """Return who reaches whom, how each node is reached, the checks in their order, and the smoke test."""
    parts = [_mesh(bundle, paint, names), measured.network_lines(bundle), _table(bundle, paint, names)]
    parts.append([printable(event.text) for event in bundle.events if event.kind == "smoke"])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _table(bundle: Bundle, paint: Paint, names: Sequence[str]) -> list[str]:
    found = findings(bundle)
    tone = {Status.PASS: paint.good, Status.FAIL: paint.bad, Status.UNKNOWN: paint.odd}
    width = max((len(each.check) for each in found), default=0)
    lines = []
    for check, status, text, hint, nodes, applies in found:
        known = tone.get(status, paint.odd)(f"{_SHOWN.get(status, status):<7}")
        word = known if applies else f"{_ABSENT:<7}"
        where = some("node", nodes) if status == Status.PASS else phrases.nodes(nodes, names)
        lines.append(f"{check:<{width}}  {word}  {where}" + (f": {text}" if text else ""))
        if hint:
            lines.append(f"{'':<{width}}           hint: {hint}")
    return lines


def _mesh(bundle: Bundle, paint: Paint, names: Sequence[str]) -> list[str]:
    mesh = sorted(bundle.mesh, key=lambda result: (result.node, result.peer))
    failed = [result for result in mesh if result.outcome != "ok"]
    number = len(bundle.mesh) + sum(map(len, bundle.passed.values()))
    if not number:
        return ["there is one node, and no path between nodes"] if bundle.nodes == 1 else []
    took = measured.between_times(
        result.seconds
        for results in reachability.tried(bundle).values()
        for result in results
        if result.outcome == "ok"
    )
    lines = [
        f"{count(number, 'connection')} between nodes tried, {len(failed)} failed"
        + (f"; those that passed took {took}, a large message included" if took else "")
    ]
    lines += reachability.map_lines(bundle)
    lines += links.lines(bundle, names)
    lines += [
        paint.bad(
            f"{phrases.node(each.node, names)} to {phrases.node(each.peer, names)}, "
            + printable(f"{each.address}:{each.port}: {each.outcome}")
        )
        + (f" ({printable(each.detail)})" if each.detail else "")
        for each in failed[:_LISTED]
    ]
    if len(failed) > _LISTED:
        lines.append(f"… and {len(failed) - _LISTED} more")
    return lines
