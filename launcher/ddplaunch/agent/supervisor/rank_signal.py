"""The job file's signal, for each rank of this node: once, whatever stands between the rank and us.

A rank without a handler would only die of it. So it gets the signal when it has one: a rank that starts, or
that its launcher has started again, may need a moment.
"""

from __future__ import annotations

import math
import os
import time
from typing import Callable

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.contract.messages import Signalled
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.system import proc, processes, signals
from ddplaunch.agent.text.ranges import some

_PATIENCE = 5.0
"""Seconds for a rank to set a handler, until it is named as one without. It gets the signal later, too."""
_STARTS = 0.3
"""Seconds for a process to become another program. It takes a few milliseconds."""
_SECOND = 2.0
"""Seconds in which a signal of the same number is the same one, by another way."""


class RankSignal:
    """Sends the plan's signal to the ranks. `report` gets the result, for the hub; `log`, what is odd."""

    def __init__(
        self,
        plan: JobPlan,
        tracker: RankTracker,
        report: Callable[[Signalled], None],
        log: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._tracker = tracker
        self._report = report
        self._log = log
        self._number = signals.number(plan.signal.name) if plan.signal is not None else 0
        self._due_since = -math.inf  # by the hub, or by our own stop
        self._again_at = -math.inf  # when a signal of this number was last sent to the job
        self._reported = True
        self._got: set[int] = set()  # processes
        self._ready_since: dict[int, float] = {}  # processes, and from when they took it
        self._own = proc.command_line(os.getpid())
        self._deaf: list[int] = []  # ranks without a handler, as last logged

    def is_named(self, number: int) -> bool:
        """Whether the job file names this signal for the ranks. MPI's launchers hand on their own copies."""
        return number == self._number and not self._plan.keepers

    @property
    def is_due(self) -> bool:
        """Whether the ranks get the signal since the end is near."""
        return self._due_since > -math.inf

    def ask(self) -> None:
        """Send it since the end is near: once, however often this is called."""
        if self._plan.signal is None:
            return
        if not self.is_due:
            now = time.monotonic()
            self._due_since = now
            if now - self._again_at > _SECOND:
                self._got.clear()
        self._reported = False  # asked again, the hub has lost the answer
        self.by_the_clock()

    def send_again(self) -> None:
        """Send it, which was sent to the job; every time."""
        now = time.monotonic()
        if now - self._due_since > _SECOND:
            self._got.clear()
        self._again_at, self._reported = now, False
        self.by_the_clock()

    def by_the_clock(self) -> None:
        """Send it to ranks that have a handler by now."""
        since = max(self._due_since, self._again_at)
        if since == -math.inf or self._tracker.launch_exit is not None:
            return
        targets = self._targets()
        for pid in targets.keys() - self._got:
            if self._is_ready(pid):
                processes.send(pid, self._number)
                self._got.add(pid)
                self._reported = False
        if self._reported:
            return
        deaf = sorted(number for pid, number in targets.items() if pid not in self._got)
        complete = targets and not deaf and len(targets) >= (self._plan.nproc_per_node or 1)
        if complete or time.monotonic() - since >= _PATIENCE:
            self._reported = True
            self._report(Signalled(len(targets) - len(deaf), deaf))
            if deaf and deaf != self._deaf:
                has, them = ("have", "them") if len(deaf) > 1 else ("has", "it")
                name = signals.name(self._number)
                self._log(f"{some('rank', deaf)} {has} no handler for {name}, which would only end {them}")
            self._deaf = deaf

    def _is_ready(self, pid: int) -> bool:
        """Whether the process takes the signal, and did a moment ago.

        A process that is about to become a rank has the handlers and the blocked signals of who starts it.
        """
        if not signals.is_awaited(pid, self._number) or proc.command_line(pid) == self._own:
            self._ready_since.pop(pid, None)
            return False
        return time.monotonic() - self._ready_since.setdefault(pid, time.monotonic()) >= _STARTS

    def _targets(self) -> dict[int, int]:
        """Return the ranks' numbers by process. Of a command without ranks, the command itself is one."""
        own = self._plan.nproc_per_node is None
        ranks = {rank.program: rank.number for rank in self._tracker.alive if own or not rank.placeholder}
        launch = self._tracker.launch
        return ranks or ({launch.pid: 0} if own and launch is not None else {})
