"""Reports of gates that cannot reach the hub, read from the log that the scheduler brings to node 0.

srun carries what tasks print over connections of Slurm's own, which a firewall lets through when it lets
nothing else. So the hub knows soon, and exactly, what a node met that it would otherwise only miss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Verdict, codec
from ddplaunch.agent.platforms.file_tail import FileTail
from ddplaunch.agent.platforms.step_tasks import StepTasks

SETTLES = 2.0
"""Seconds from the hub's start until a report counts: a gate that failed before then tries again in time."""
_MARK = b'{"unreached":'


class UnreachedReport(NamedTuple):
    """One node's own verdict on why it does not reach the hub, and for how many seconds it has tried."""

    node: int
    seconds: float
    verdict: Verdict
    hub: str = ""  # where the hub's port refuses it: "n0:29400 (10.0.0.5)"


def line(report: UnreachedReport) -> str:
    """Return the line that a gate prints. Whatever collects the output may put a label before it."""
    body = {
        "unreached": report.node,
        "seconds": round(report.seconds, 1),
        **({"hub": report.hub} if report.hub else {}),
        "verdict": codec.dump(report.verdict),
    }
    return json.dumps(body, separators=(",", ":"))


class SchedulerLog:
    """Reads all gates' output. `tasks` are the gates' own, as srun tells of them."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self.tasks = StepTasks(names)
        self._output = FileTail(path)

    def listen(self, now: float) -> list[UnreachedReport]:
        """Return what was added since the last call."""
        lines = self._output.lines()
        self.tasks.add(lines, now)
        return [report for text in lines if (report := read(text)) is not None]


def read(text: bytes) -> Optional[UnreachedReport]:
    """Return what `line` made of it; None of any other line, or of a broken one."""
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        body = json.loads(text[start:])
        verdict, hub = codec.load(Verdict, body["verdict"]), codec.load(str, body.get("hub") or "")
        return UnreachedReport(int(body["unreached"]), float(body["seconds"]), verdict, hub)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
