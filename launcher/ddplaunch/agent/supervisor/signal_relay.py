"""Passes signals on to the launch command as if it had been started without us: each one once, none is lost.

They come from the outer process through a pipe, with their sender. A signal that comes to this process
directly was sent to all processes of the job, as some schedulers do, and so to the launch command as well.
The signal that the job file names goes to the ranks themselves, whatever is between them and us.
"""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Callable, Optional

from ddplaunch.agent.contract import Files, JobPlan, StopRequest, codec
from ddplaunch.agent.contract.messages import Signalled
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.reaper import Outer, SentSignal
from ddplaunch.agent.system import proc, processes, signals
from ddplaunch.agent.text.quantities import some

_SECOND_COPY = 2.0
"""Seconds between a signal to all processes of the job and its second copy, which comes through the outer
process."""
_DIRECT = 0.05
"""Seconds within which a scheduler signals all processes of a node."""
_READY = 10.0
"""Seconds for the launch command to set a handler for a signal that came before it was started."""
_STOPPED = 5.0
"""Seconds that it has to stop on Ctrl-Z, if it has a handler that does something first."""
_AT_ONCE = 0.2
"""Seconds to wait for that, because the user waits for the shell's prompt."""
_HARMLESS = frozenset([signal.SIGCONT, signal.SIGWINCH, signal.SIGURG])
"""Without a handler these do nothing, so a program that starts later needs none of them."""


class SignalRelay:
    """The signals to one launch command. `waiting`: those that have come and are not handled yet."""

    def __init__(self, place: LaunchContext, outer: Outer, tracker: RankTracker) -> None:
        self.waiting: list[SentSignal] = []
        self._place = place
        self._request = os.path.join(place.folder, Files.STOP_REQUEST)
        self._outer = outer
        self._has_hung_up = False  # the outer process, as its pipe shows
        self._tracker = tracker
        self._early: list[tuple[SentSignal, float]] = []  # and until when each of them waits for a handler
        self._direct: dict[int, float] = {}  # signal -> when it came, not through the outer process
        self._pausing = 0.0  # until when the launch command may take to stop

    def listen(self) -> None:
        """From now on, note signals that come directly. Signals that our caller ignores stay ignored."""
        for number in signals.FORWARDED - signals.CRASHES:
            if not signals.is_ignored(number):
                signal.signal(number, self._note_direct)
        signals.unblock()

    def fileno(self) -> int:
        return self._outer.pipe

    def read(self) -> None:
        """Add what has come to `waiting`."""
        sent = self._outer.read()
        self._has_hung_up = self._has_hung_up or sent is None
        self.waiting += [SentSignal(signal.SIGTERM)] if sent is None else sent

    @property
    def is_alone(self) -> bool:
        """Whether the outer process is gone, so that no caller waits for us any more.

        A process that is killed closes its files first, and gives up its children a moment later. On a busy
        machine that moment is long enough to tell the hub that somebody had asked for our end.
        """
        return self._has_hung_up or os.getppid() != self._outer.pid

    def describe(self, sent: SentSignal) -> str:
        """Return who asks for the end: `Ctrl-C`, `ddplaunch cancel`, or the signal and its sender."""
        request = self.request_of(sent)
        if request is not None:
            return request.who
        return f"{signals.name(sent.number)}{sent.who}"

    def request_of(self, sent: SentSignal) -> Optional[StopRequest]:
        """Return what was left in the job's folder about this signal; None on other machines."""
        try:
            request = codec.read(StopRequest, self._request)
        except (OSError, codec.ContractError):
            return None
        return request if request.number == sent.number else None

    def asks_for_end(self, sent: SentSignal) -> bool:
        """Whether the signal asks for the end. A launch command that handles SIGHUP only wants to know."""
        launch = self._tracker.launch
        if sent.number == signal.SIGHUP:
            return launch is None or not signals.is_caught(launch.pid, sent.number)
        if sent.number not in (signal.SIGTERM, signal.SIGINT):
            return False
        if not signals.is_ignored(sent.number) or self.is_alone:
            return True
        request = self.request_of(sent)
        # What our caller ignores, the launch command ignores too, unless it has a handler.
        wanted = launch is not None and signals.has_handler(launch.pid, sent.number)
        return wanted or (request is not None and request.final)

    def pass_on(self, sent: SentSignal) -> None:
        """Send it to the launch command, alone or with its group, as a terminal does."""
        launch = self._tracker.launch
        if self._has_come_to_all(sent.number) or launch is None or self._tracker.launch_exit is not None:
            return
        request = self.request_of(sent)
        to_group = sent.number == signal.SIGWINCH or (sent if request is None else request).to_group
        processes.send(self._place.group_of(launch.pid) if to_group else launch.pid, sent.number)

    def is_for_ranks(self, sent: SentSignal) -> bool:
        """Whether the ranks have no copy of their own: it was not sent to all processes of the job."""
        return not self._has_come_to_all(sent.number)

    def forward(self, sent: SentSignal, started: float) -> None:
        """Pass on a signal that does not ask for the end. `started`: time.monotonic() of the launch command's
        start.
        """
        if sent.number in signals.PAUSES:
            self._pause()
        elif sent.number == signal.SIGCONT:
            self._resume()
        elif sent.at < started and sent.number not in _HARMLESS:
            self._early.append((sent, time.monotonic() + _READY))
        else:
            self.pass_on(sent)

    def do_what_is_due(self) -> None:
        """Do what is due: signals that wait for a handler, and our own pause."""
        launch, now = self._tracker.launch, time.monotonic()
        if launch is None:
            return
        for early in list(self._early):
            sent, until = early
            if now > until or signals.is_caught(launch.pid, sent.number):
                self._early.remove(early)
                self.pass_on(sent)
        if now < self._pausing and is_stopped(launch.pid):
            self._pausing = 0.0
            os.kill(os.getpid(), signal.SIGSTOP)  # the outer process follows; SIGCONT comes through it

    # --- Ctrl-Z, fg and bg

    def _pause(self) -> None:
        """Stop the launch command's group, as a terminal does.

        If there is no handler, use SIGSTOP: the kernel drops SIGTSTP if no shell is there to continue the
        group.
        """
        for pid in self._group():
            caught = signals.is_caught(pid, signal.SIGTSTP)
            processes.send(pid, signal.SIGTSTP if caught else signal.SIGSTOP)
        now = time.monotonic()
        self._pausing = now + _STOPPED
        launch = self._tracker.launch
        while launch is not None and not is_stopped(launch.pid) and time.monotonic() < now + _AT_ONCE:
            time.sleep(0.005)

    def _resume(self) -> None:
        self._pausing = 0.0
        launch = self._tracker.launch
        if launch is not None and self._tracker.launch_exit is None:
            processes.send(self._place.group_of(launch.pid), signal.SIGCONT)

    def _group(self) -> list[int]:
        launch = self._tracker.launch
        if launch is None or self._tracker.launch_exit is not None:
            return []
        group = []
        for pid in processes.descendants(os.getpid()):
            try:
                if os.getpgid(pid) == launch.pid:
                    group.append(pid)
            except ProcessLookupError:
                continue
        return group

    # --- signals to all processes of the job

    def _note_direct(self, number: int, _: object) -> None:
        self._direct[number] = time.monotonic()

    def _has_come_to_all(self, number: int) -> bool:
        time.sleep(_DIRECT)
        return time.monotonic() - self._direct.pop(number, -_SECOND_COPY) < _SECOND_COPY


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    stat = proc.stat(pid)
    return stat is not None and stat.state in "Tt"


# --- the job file's signal, for the ranks

_HANDLER_PATIENCE = 5.0
"""Seconds that a rank has to set a handler before it is named as one without. It still gets the signal
later."""
_PROGRAM_STARTS = 0.3
"""Seconds for a process to become another program. It takes a few milliseconds."""
_SAME_SIGNAL = 2.0
"""Seconds within which a signal with the same number is the same signal, which came another way."""


class RankSignal:
    """Sends the plan's signal to the ranks. `report` tells the hub the result; `log` gets what is odd."""

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
        self._due_since = -math.inf  # because of the hub, or of our own stop
        self._again_at = -math.inf  # when a signal with this number was last sent to the job
        self._reported = True
        self._got: set[int] = set()  # processes
        self._ready_since: dict[int, float] = {}  # processes, and since when each has been ready for it
        self._own = proc.command_line(os.getpid())
        self._deaf: list[int] = []  # ranks without a handler, as last logged

    def is_named(self, number: int) -> bool:
        """Whether the job file names this signal for the ranks. MPI's launchers pass on their own copies."""
        return number == self._number and not self._plan.keepers

    @property
    def is_due(self) -> bool:
        """Whether the ranks should get the signal because the end is near."""
        return self._due_since > -math.inf

    def send_once(self) -> None:
        """Send it because the end is near: only once, however often this is called."""
        if self._plan.signal is None:
            return
        if not self.is_due:
            now = time.monotonic()
            self._due_since = now
            if now - self._again_at > _SAME_SIGNAL:
                self._got.clear()
        self._reported = False  # it asks again, so the hub has lost the answer
        self.do_what_is_due()

    def send_again(self) -> None:
        """Send it each time that it was sent to the job."""
        now = time.monotonic()
        if now - self._due_since > _SAME_SIGNAL:
            self._got.clear()
        self._again_at, self._reported = now, False
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        """Send it to ranks that now have a handler."""
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
        if complete or time.monotonic() - since >= _HANDLER_PATIENCE:
            self._reported = True
            self._report(Signalled(len(targets) - len(deaf), deaf))
            if deaf and deaf != self._deaf:
                has, them = ("have", "them") if len(deaf) > 1 else ("has", "it")
                name = signals.name(self._number)
                self._log(f"{some('rank', deaf)} {has} no handler for {name}, which would only end {them}")
            self._deaf = deaf

    def _is_ready(self, pid: int) -> bool:
        """Whether the process is ready for the signal, and was ready a moment ago.

        A process that is about to become a rank has the handlers and the blocked signals of the process that
        starts it.
        """
        if not signals.is_awaited(pid, self._number) or proc.command_line(pid) == self._own:
            self._ready_since.pop(pid, None)
            return False
        return time.monotonic() - self._ready_since.setdefault(pid, time.monotonic()) >= _PROGRAM_STARTS

    def _targets(self) -> dict[int, int]:
        """Return the ranks' numbers by process. For a command without ranks, that is the command itself."""
        own = self._plan.nproc_per_node is None
        ranks = {rank.program: rank.number for rank in self._tracker.alive if own or not rank.placeholder}
        launch = self._tracker.launch
        return ranks or ({launch.pid: 0} if own and launch is not None else {})
