"""The hub's side of the collective smoke test: all ranks import torch, all start, one result."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Optional

from ddplaunch.agent.contract import SmokeRank, Verdict, codec
from ddplaunch.agent.diagnosis.gate import smoke_test
from ddplaunch.agent.diagnosis.gate.job_view import GateView
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.server import Session, tell
from ddplaunch.agent.transport.protocol import Body

IMPORT = 75.0
"""Seconds for all gates to say that their ranks are there; each ends by itself a little earlier."""
RUN = 180.0
"""For all results: a gate tells its own 20 s after its ranks have stopped to move."""
GRACE = 2.0
"""For the others, once a node has told of a failure."""
_LAST = 5.0


class _State(enum.Enum):
    IMPORTING = "the ranks start, and import torch"
    RUNNING = "all ranks run the collective"
    FAILING = "a rank has failed; the others may have something to say"
    STOPPED = "the hub has stopped the test on the nodes without a result"


class SmokeTest:
    """The smoke test of all nodes, from `begin` until `step` returns the verdicts, or none."""

    kinds = frozenset({"smoke-ready", "smoke-results"})

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._backends: list[str] = []
        self._ports: dict[str, int] = {}
        self._ready: set[int] = set()
        self._results: dict[int, list[SmokeRank]] = {}
        self._state = _State.IMPORTING
        self._deadline = 0.0

    def begin(self, now: float, view: GateView) -> Body:
        """Return the body of the message that starts the test at all gates."""
        self._backends = smoke_test.backends(view)
        self._deadline = now + IMPORT
        self._record.event("smoke", f"all ranks import torch, to add up by {' and '.join(self._backends)}")
        return {"backends": self._backends}

    def received(self, session: Session, kind: str, body: Body) -> None:
        if session.node is None:
            return
        if kind == "smoke-ready":
            self._ready.add(session.node)
            self._ports.update(codec.load(dict[str, int], body.get("ports")))
        else:
            self._results[session.node] = codec.load(list[SmokeRank], body.get("ranks"))

    def step(self, now: float, view: GateView, gates: Mapping[int, Session]) -> Optional[list[Verdict]]:
        """None: it goes on."""
        if self._state == _State.IMPORTING and len(self._ready) == view.plan.nodes and self._record.agreed:
            self._state, self._deadline = _State.RUNNING, now + RUN
            tell(
                gates.values(), "smoke-go", {"address": self._record.agreed.master_addr, "ports": self._ports}
            )
        failed = any(rank.stage != "done" for ranks in self._results.values() for rank in ranks)
        if failed and self._state in (_State.IMPORTING, _State.RUNNING):
            self._state, self._deadline = _State.FAILING, min(self._deadline, now + GRACE)
        late = now > self._deadline
        if late and self._state != _State.STOPPED:
            self._state, self._deadline, late = _State.STOPPED, now + _LAST, False
            tell([s for n, s in gates.items() if n not in self._results], "smoke-stop", {})
        if len(self._results) < view.plan.nodes and not late:
            return None
        ranks = [rank for _, each in sorted(self._results.items()) for rank in each]
        for text in smoke_test.notes(view, ranks, self._backends):
            self._record.event("smoke", text)
        return smoke_test.judge(view, ranks, self._backends)
