"""Formats the results of a node's checks as a table. Pure."""

from __future__ import annotations

from ddplaunch.agent.contract import CheckResult, Status
from ddplaunch.agent.text.printable import printable

_MARKS = {Status.PASS: "ok", Status.FAIL: "FAIL", Status.UNKNOWN: "?"}
_COLOURS = {Status.PASS: "32", Status.FAIL: "31;1", Status.UNKNOWN: "33"}


def rows(results: list[CheckResult], colour: bool) -> list[str]:
    """Return a line for each check; below those that did not pass, what was wanted, and a hint."""
    width = max((len(result.check) for result in results), default=0)
    lines = []
    for result in results:
        mark = f"{_MARKS[result.status]:<4}"
        if colour:
            mark = f"\033[{_COLOURS[result.status]}m{mark}\033[0m"
        lines.append(f"  {mark}  {result.check:<{width}}  {printable(result.observed)}")
        if result.status != Status.PASS:
            below = " " * (10 + width)
            lines += [f"{below}wanted: {printable(result.wanted)}"] if result.wanted else []
            lines += [f"{below}hint: {printable(result.hint)}"] if result.hint else []
    return lines
