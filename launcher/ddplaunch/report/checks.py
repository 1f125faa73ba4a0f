"""What the gate found, as a table: one line per check and result, whatever the number of nodes."""

from __future__ import annotations

from ddplaunch.agent.contract import Bundle, CheckResult, Status
from ddplaunch.report.paint import PLAIN, Paint
from ddplaunch.report.words import count, printable, some

_LISTED = 20
"""Failed connections that are listed: where a rack is cut off there are thousands."""
_SHOWN = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.UNKNOWN: "unknown"}


def checks_text(bundle: Bundle, paint: Paint = PLAIN) -> str:
    """The checks in the order in which they run, then connections between nodes, and the smoke test."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for check_in in bundle.check_ins:
        for check in check_in.checks:
            key = (
                check.check,
                check.status,
                _said(check),
                printable(check.hint) if check.status != Status.PASS else "",
            )
            found.setdefault(key, []).append(check_in.node)
    order = list(dict.fromkeys(name for name, *_ in found))
    tone = {Status.PASS: paint.good, Status.FAIL: paint.bad, Status.UNKNOWN: paint.odd}
    width = max((len(name) for name, *_ in found), default=0)
    lines = []
    for (name, status, said, hint), nodes in sorted(found.items(), key=lambda each: order.index(each[0][0])):
        word = tone.get(status, paint.odd)(f"{_SHOWN.get(status, status):<7}")
        lines.append(f"{name:<{width}}  {word}  {some('node', nodes)}" + (f": {said}" if said else ""))
        if hint:
            lines.append(f"{'':<{width}}           hint: {hint}")
    lines += _mesh(bundle, paint)
    lines += [printable(event.text) for event in bundle.events if event.kind == "smoke"]
    return "\n".join(lines)


def _said(check: CheckResult) -> str:
    if check.status == Status.PASS:
        return ""
    return printable(check.observed + (f"; wanted {check.wanted}" if check.wanted else ""))


def _mesh(bundle: Bundle, paint: Paint) -> list[str]:
    mesh = sorted(bundle.mesh, key=lambda result: (result.node, result.peer))
    failed = [result for result in mesh if result.outcome != "ok"]
    number = len(bundle.mesh) + sum(map(len, bundle.passed.values()))
    lines = [
        paint.bad(f"node {each.node} to node {each.peer}, {each.address}:{each.port}: {each.outcome}")
        + (f" ({printable(each.detail)})" if each.detail else "")
        for each in failed[:_LISTED]
    ]
    if number:
        more = f", {_LISTED} of them above" if len(failed) > _LISTED else ""
        lines.append(f"{count(number, 'connection')} between nodes tried, {len(failed)} failed{more}")
    return lines
