"""Tells which supervisors are missing after the release, and whether they may still come.

All were at the gate a moment ago. Who does not come now has a prolog that fails, a full disk, or a container
that does not start; and the others wait for it in torchrun, which says nothing for minutes.
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
"""Seconds after the last supervisor that came, after which those who have not come are told of."""
GIVEN_UP = 60.0
"""Seconds after which nobody waits for them any more. They need less than one, on a busy machine a few; a
call that was lost is repeated within thirty."""
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
        self._told = False

    def resume(self, here: Iterable[int], now: float) -> None:
        """These nodes had come before this hub was started in the place of another."""
        self._here, self._last = set(here), now

    def joined(self, node: int, host: str, now: float) -> None:
        """Note that the node's supervisor is here.

        Raises ContractError for a node that the job does not have, and before the gate has let the job pass.

        A hub that was started again and found nothing of the gate lets supervisors in.
        """
        if not 0 <= node < self._plan.nodes:
            raise codec.ContractError(f"node {node} joins a job of {self._plan.nodes} nodes")
        if self._record.check_ins and self._record.agreed is None:
            raise codec.ContractError(f"node {node} joins before the gate has let anybody pass")
        self._record.node(node, host=host, phase=Phase.RENDEZVOUS)
        if node in self._here:
            return
        self._here.add(node)
        self._last = now
        if self._told and len(self._here) == self._plan.nodes:
            self._record.event("notice", "all nodes have started their ranks after all")
            self._record.wait_for([])
            self._record.judge([])

    def look(self, now: float) -> Optional[JoinFault]:
        """Return the fault to report now, and whether it ends the job; None: no fault."""
        if len(self._here) == self._plan.nodes or now - self._looked < _EVERY or not self._is_released():
            return None
        self._looked = now
        self._last = now if self._last is None else self._last
        missing = sorted(set(range(self._plan.nodes)) - self._here)
        self._step.listen(now)
        gone = [task for task in self._step.tasks.ended(now) if task.node in missing]
        if gone:
            why = unstarted.ended(gone, self._plan.names, self._platform, unstarted.RANKS)
            return JoinFault([why], certain=True)
        waited = now - self._last
        certain = waited >= self._patience() and not self._ranks_run()
        if not certain and (waited < LATE or self._told or not self._here):
            return None
        self._told = True
        self._record.wait_for(missing)
        if not self._here:
            return JoinFault([unstarted.none(self._platform, waited)], certain)
        return JoinFault([unstarted.awaited(missing, self._plan.names, self._platform, waited)], certain)

    def _is_released(self) -> bool:
        """Whether this very hub released the gate: one that was started again does not know who left."""
        past = bool(self._here) or self._record.phase not in (Phase.STARTING, Phase.GATE)
        return past and self._record.agreed is not None

    def _patience(self) -> float:
        """Return seconds to wait; more while no supervisor has joined: the scheduler may start them yet."""
        return GIVEN_UP if self._here else max(NONE_CAME, self._plan.gate.timeout)

    def _ranks_run(self) -> bool:
        """Then launch commands have met, and a supervisor is there that only does not reach us."""
        later = Phase.ORDER[Phase.ORDER.index(Phase.RENDEZVOUS) + 1 :]
        return any(self._record.nodes[node].phase in later for node in self._here)
