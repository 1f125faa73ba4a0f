"""Shows what the gate found as a table: one line per check and result, for any number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Bundle, Status
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report.paint import PLAIN, Paint
from ddplaunch.report.words import count, some

_LISTED = 20
"""Failed connections that are listed: where a rack is cut off there are thousands."""
_WORDINGS = 8
"""Different words of one check that are told: hundreds of nodes measure hundreds of loads."""
_OTHERWISE = "likewise, in words of their own"
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNKNOWN: "unknown"}


class Finding(NamedTuple):
    """A result of one check, and its nodes."""

    check: str
    status: str
    said: str
    hint: str
    nodes: list[int]


def findings(bundle: Bundle) -> list[Finding]:
    """Return the findings in the order of the checks. All nodes that passed a check share one.

    What did not pass is told in its own words, of many different ones the first.
    """
    kept: dict[tuple[str, str], list[Finding]] = {}
    for each in every_word(bundle):
        if each.status == Status.PASS:
            each = each._replace(said="", hint="")
        same = kept.setdefault((each.check, each.status), [])
        if same and (each.status == Status.PASS or len(same) > _WORDINGS):
            same[-1] = same[-1]._replace(nodes=sorted({*same[-1].nodes, *each.nodes}))
        else:
            same.append(each if len(same) < _WORDINGS else each._replace(said=_OTHERWISE))
    return [each for same in kept.values() for each in same]


def every_word(bundle: Bundle) -> list[Finding]:
    """The same with all that was said; nodes that said the same together."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for check_in in bundle.check_ins:
        for check in check_in.checks:
            said = check.observed + (f"; wanted {check.wanted}" if check.wanted else "")
            name, status, said, hint = map(printable, (check.check, check.status, said, check.hint))
            found.setdefault((name, status, said, hint), []).append(check_in.node)
    order = list(dict.fromkeys(name for name, *_ in found))
    whole = [Finding(*key, nodes) for key, nodes in found.items()]
    return sorted(whole, key=lambda each: order.index(each.check))


def checks_text(bundle: Bundle, paint: Paint = PLAIN, names: Sequence[str] = ()) -> str:
    """The checks in the order in which they run, then connections between nodes, and the smoke test."""
    found = findings(bundle)
    tone = {Status.PASS: paint.good, Status.FAIL: paint.bad, Status.UNKNOWN: paint.odd}
    width = max((len(each.check) for each in found), default=0)
    lines = []
    for check, status, said, hint, nodes in found:
        word = tone.get(status, paint.odd)(f"{_SHOWN.get(status, status):<7}")
        where = some("node", nodes) if status == Status.PASS else phrases.nodes(nodes, names)
        lines.append(f"{check:<{width}}  {word}  {where}" + (f": {said}" if said else ""))
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
