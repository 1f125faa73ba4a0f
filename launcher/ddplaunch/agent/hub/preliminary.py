"""Preliminary verdicts: those the job would end with if nothing changed, published while they may still pass.

The user reads within seconds what is wrong, and the job has its minute to recover.
"""

from __future__ import annotations

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.hub.job_record import JobRecord


class PreliminaryVerdicts:
    """Keeps the record's verdicts for as long as the gate waits."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._stands: list[tuple[str, set[int]]] = []

    def publish(self, verdicts: list[Verdict]) -> None:
        """Report each verdict once, again when its nodes change, and take it back when it no longer holds."""
        before = self._stands
        self._stands = [(verdict.code, set(verdict.nodes)) for verdict in verdicts]
        if self._stands == before:
            return
        verdicts = self._record.placed(verdicts)
        for verdict, (code, nodes) in zip(verdicts, self._stands):
            if not any(code == known and nodes & others for known, others in before):
                node = verdict.nodes[0] if len(nodes) == 1 else None
                self._record.event("notice", f"{code}: {verdict.sentence}", node)
        self._record.judge(verdicts)
