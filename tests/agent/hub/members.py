"""A job whose nodes come and go, with a clock of the test's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ddplaunch.agent.contract import CheckIn, CheckResult, Files, GatePlan, JobPlan, Verdict
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.membership import Membership
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line


class Trial:
    """The roll call of a job of three nodes."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.plan = JobPlan("trial", 3, 2, ["{python}"], ["train.py"], gate=GatePlan(timeout=120.0))
        self.record = JobRecord(self.plan, str(folder), 0)
        self.folder = folder
        self.view = Membership(self.plan, self.record, lambda: self.now)

    def comes(self, node: int, *checks: CheckResult) -> None:
        facts: dict[str, Any] = {"hub": {"received": time.time()}}
        check_in = CheckIn(node, f"n{node}", 3, 2, "10.0.0.1", {}, time.time(), facts=facts, checks=[*checks])
        self.record.check_ins[node] = check_in
        self.view.note_check_in(check_in)

    def after(self, seconds: float) -> list[str]:
        """Codes of what is told by then, looked at every second as the hub does."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            verdicts = self.view.look(self.now).verdicts
            if verdicts:
                return [verdict.code for verdict in verdicts]
        return []

    def over(self) -> bool:
        """Whether the mesh may begin."""
        return self.view.look(self.now)[:3] == ([], [], {})

    def foreseen(self) -> list[str] | None:
        """Codes of what the job would end by."""
        found = self.view.look(self.now).foreseen
        return None if found is None else [verdict.code for verdict in found]

    def hears(self, node: int, seconds: float, code: str = "port-filtered") -> None:
        """What a gate prints that has not reached the hub for so many seconds."""
        said = report_line(
            UnreachedReport(
                node, seconds, Verdict.of(code, f"node {node} -> the hub: in vain", "gate", [node])
            )
        )
        with (self.folder / Files.GATES).open("a") as file:
            file.write(f"{said}\n")
        self.view.read_scheduler_log()

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.record.bundle().events]
