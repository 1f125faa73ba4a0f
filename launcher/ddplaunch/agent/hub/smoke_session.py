"""The hub's side of the collective smoke test: all ranks import torch, run a collective, and report."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Callable, Optional, Union

from ddplaunch.agent.contract import RendezvousSettings, SmokeRank, Verdict
from ddplaunch.agent.contract.messages import SmokeBegin, SmokeGo, SmokeReady, SmokeResults, SmokeStop
from ddplaunch.agent.diagnosis.gate import smoke_test
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, send_all

IMPORT = 75.0
"""Seconds for all gates to report that their ranks have imported torch; each gives up a little earlier."""
RUN = 180.0
"""Seconds for all results: a gate reports 20 s after its ranks have stopped moving."""
GRACE = 2.0
"""Seconds for the other nodes, once one has reported a failure."""
_LAST = 5.0


class _State(enum.Enum):
    IMPORTING = "the ranks start, and import torch"
    RUNNING = "all ranks run the collective"
    FAILING = "a rank has failed; the others have a moment to report"
    STOPPED = "the hub has stopped the test on the nodes without a result"


class SmokeTest:
    """The smoke test of all nodes, from `begin` until `step` returns the verdicts, or none."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._backends: list[str] = []
        self._ports: dict[str, int] = {}
        self._ready: set[int] = set()
        self._results: dict[int, list[SmokeRank]] = {}
        self._state = _State.IMPORTING
        self._deadline = 0.0

    def begin(self, now: float, view: GateView) -> Callable[[RendezvousSettings], SmokeBegin]:
        """Start the test. Returns a function from a node's settings to the message that starts it there."""
        self._backends = smoke_test.backends(view)
        self._deadline = now + IMPORT
        self._record.event("smoke", f"all ranks import torch, to add up by {' and '.join(self._backends)}")
        return lambda settings: SmokeBegin(settings, self._backends)

    def received(self, session: Session, message: Union[SmokeReady, SmokeResults]) -> None:
        if session.node is None:
            return
        if isinstance(message, SmokeReady):
            self._ready.add(session.node)
            self._ports.update(message.ports)
        else:
            self._results[session.node] = message.ranks

    def step(self, now: float, view: GateView, gates: Mapping[int, Session]) -> Optional[list[Verdict]]:
        """Return the verdicts of the test, empty when it has passed; None while it goes on."""
        if self._state == _State.IMPORTING and len(self._ready) == view.plan.nodes and self._record.agreed:
            self._state, self._deadline = _State.RUNNING, now + RUN
            send_all(gates.values(), SmokeGo(self._record.agreed.master_addr, self._ports))
        failed = any(rank.stage != "done" for ranks in self._results.values() for rank in ranks)
        if failed and self._state in (_State.IMPORTING, _State.RUNNING):
            self._state, self._deadline = _State.FAILING, min(self._deadline, now + GRACE)
        late = now > self._deadline
        if late and self._state != _State.STOPPED:
            self._state, self._deadline, late = _State.STOPPED, now + _LAST, False
            send_all([s for n, s in gates.items() if n not in self._results], SmokeStop())
        if len(self._results) < view.plan.nodes and not late:
            return None
        ranks = [rank for _, each in sorted(self._results.items()) for rank in each]
        for text in smoke_test.notes(view, ranks, self._backends):
            self._record.event("smoke", text)
        return smoke_test.judge(view, ranks, self._backends)
