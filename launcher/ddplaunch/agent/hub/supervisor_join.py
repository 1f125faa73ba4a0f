"""Supervisors that are missing after the release, and whether they may still come.

All nodes were at the gate a moment before. A node that does not join has a prolog that fails, a full disk, or
a container that does not start; the others wait for it in torchrun, which is silent for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Files, Phase, Verdict, codec
from ddplaunch.agent.diagnosis.gate import unstarted
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.platforms.scheduler_log import SchedulerLog

LATE = 10.0
"""Seconds after the last supervisor has joined until the missing ones are reported."""
GIVEN_UP = 60.0
"""Seconds until the job ends. A supervisor needs less than one, on a busy machine a few; a lost call is
repeated within thirty."""
NONE_CAME = 300.0
"""Seconds of patience where no node has come: after a short absence of its controller a scheduler may wait
two minutes before it asks again."""

_EVERY = 0.3


class JoinFault(NamedTuple):
    """Verdicts on missing supervisors, and whether the job ends by them."""

    verdicts: list[Verdict]
    certain: bool


class SupervisorJoin:
    """Times are the monotonic clock."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._plan = record.plan
        self._step = SchedulerLog(record.path(Files.STEP), record.plan.names)
        self._platform = platforms.named(record.plan.platform)
        self._here: set[int] = set()
        self._last: Optional[float] = None  # when the last one came, or all were released
        self._looked = float("-inf")
        self._reported = False

    def resume(self, here: Iterable[int], now: float) -> None:
        """Note the nodes that had joined an earlier hub."""
        self._here, self._last = set(here), now

    def joined(self, node: int, host: str, now: float) -> None:
        """Note that the node's supervisor has joined.

        Raises ContractError for a node that the job does not have, and before the release. A hub that was
        started again and knows nothing of the gate lets supervisors in.
        """
        if not 0 <= node < self._plan.nodes:
            raise codec.ContractError(f"node {node} joins a job of {self._plan.nodes} nodes")
        if self._record.check_ins and self._record.agreed is None:
            raise codec.ContractError(f"node {node} joins before the release")
        self._record.node(node, host=host, phase=Phase.RENDEZVOUS)
        if node in self._here:
            return
        self._here.add(node)
        self._last = now
        if self._reported and not self._missing():
            self._record.event("notice", "all nodes have started their ranks after all")
            self._record.wait_for([])
            self._record.judge([])

    def look(self, now: float) -> Optional[JoinFault]:
        """Return the fault to report now, and whether it ends the job; None: no fault."""
        missing = self._missing()
        if not missing or now - self._looked < _EVERY or not self._is_released():
            return None
        self._looked = now
        self._last = now if self._last is None else self._last
        self._step.listen(now)
        gone = [task for task in self._step.tasks.ended(now) if task.node in missing]
        if gone:
            why = unstarted.ended(gone, self._plan.names, self._platform, unstarted.RANKS)
            return JoinFault([why], certain=True)
        waited = now - self._last
        certain = waited >= self._patience() and not self._ranks_run()
        if not certain and (waited < LATE or self._reported or not self._here):
            return None
        self._reported = True
        self._record.wait_for(missing)
        if not self._here:
            return JoinFault([unstarted.none(self._platform, waited)], certain)
        return JoinFault([unstarted.awaited(missing, self._plan.names, self._platform, waited)], certain)

    def _missing(self) -> list[int]:
        return sorted(self._record.members - self._here)

    def _is_released(self) -> bool:
        """Whether this hub released the gate: a restarted hub does not know which gates have left."""
        past = bool(self._here) or self._record.phase not in (Phase.STARTING, Phase.GATE)
        return past and self._record.agreed is not None

    def _patience(self) -> float:
        """Return seconds to wait; more while no supervisor has joined: the scheduler may start them yet."""
        return GIVEN_UP if self._here else max(NONE_CAME, self._plan.gate.timeout)

    def _ranks_run(self) -> bool:
        """Whether some rank runs: then the missing supervisors are there, and only do not reach the hub."""
        later = Phase.ORDER[Phase.ORDER.index(Phase.RENDEZVOUS) + 1 :]
        return any(self._record.nodes[node].phase in later for node in self._here)
