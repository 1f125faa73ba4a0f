"""Preliminary verdicts: what the job would end by if nothing changed, published while it may still pass.

People learn within seconds what is wrong, and the job has its minute to get over it.
"""

from __future__ import annotations

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.hub.job_record import JobRecord


class PreliminaryVerdicts:
    """Keeps the record's verdicts for as long as the gate waits."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._stands: list[tuple[str, set[int]]] = []

    def tell(self, verdicts: list[Verdict]) -> None:
        """Each once for as long as it stands, of more nodes or fewer; what has passed is taken back."""
        before = self._stands
        self._stands = [(verdict.code, set(verdict.nodes)) for verdict in verdicts]
        if self._stands == before:
            return
        verdicts = self._record.placed(verdicts)
        for verdict, (code, nodes) in zip(verdicts, self._stands):
            if not any(code == told and nodes & who for told, who in before):
                node = verdict.nodes[0] if len(nodes) == 1 else None
                self._record.event("notice", f"{code}: {verdict.sentence}", node)
        self._record.judge(verdicts)
