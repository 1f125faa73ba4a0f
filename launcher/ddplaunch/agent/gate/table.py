"""Formats the results of a node's checks and paths as a table. Pure."""

from __future__ import annotations

from ddplaunch.agent.checks.context import passed
from ddplaunch.agent.contract import CheckResult, MeshResult, Status
from ddplaunch.agent.system import phrases
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


def summary(results: list[MeshResult], names: list[str]) -> CheckResult:
    """Return all paths as the result of one check."""
    bad = [result for result in results if result.outcome != "ok"]
    slowest = max((result.seconds for result in results), default=0.0)
    if not bad:
        return passed("mesh", f"{len(results)} paths to peers pass, the slowest in {slowest * 1000:.0f} ms")
    return CheckResult(
        "mesh",
        Status.FAIL,
        f"{len(bad)} of {len(results)} paths fail, first {phrases.node(bad[0].peer, names)} at "
        f"{bad[0].address} port {bad[0].port}: {bad[0].outcome}",
    )
