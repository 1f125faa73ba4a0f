"""Reads the log that the scheduler brings to node 0: reports of gates, and what srun says about its tasks.

srun carries what tasks print over Slurm's own connections. A firewall lets these through even when it lets
nothing else through. So the hub knows soon, and exactly, what a node met, while otherwise it would only miss
the node. A task may end before our agent runs: a prolog fails, a disk is full, there is no Python. Then its
node sends no message, but srun reports the end at once. Times are by the caller's clock.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Exit, Verdict, codec
from ddplaunch.agent.system.files import FileTail

SETTLES = 2.0
"""Seconds from the hub's start before a report counts: a gate that failed before then tries again in time."""
_MARK = b'{"unreached":'


class UnreachedReport(NamedTuple):
    """One node's own verdict on why it does not reach the hub, and how many seconds it has tried."""

    node: int
    seconds: float
    verdict: Verdict
    hub: str = ""  # where the hub's port refuses it: "n0:29400 (10.0.0.5)"


def report_line(report: UnreachedReport) -> str:
    """Return the line that a gate prints. Whatever collects the output may put a label before it."""
    body = {
        "unreached": report.node,
        "seconds": round(report.seconds, 1),
        **({"hub": report.hub} if report.hub else {}),
        "verdict": codec.dump(report.verdict),
    }
    return json.dumps(body, separators=(",", ":"))


class SchedulerLog:
    """Reads the output of all gates. `tasks` are the gates' own, as srun describes them."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self.tasks = StepTasks(names)
        self._output = FileTail(path)

    def listen(self, now: float) -> list[UnreachedReport]:
        """Return what has been added since the last call."""
        lines = self._output.lines()
        self.tasks.add(lines, now)
        return [report for text in lines if (report := read_report(text)) is not None]


def read_report(text: bytes) -> Optional[UnreachedReport]:
    """Return the report in a line that `report_line` made; None for any other line, or for a broken one."""
    start = text.find(_MARK)
    if start < 0:
        return None
    try:
        body = json.loads(text[start:])
        verdict, hub = codec.load(Verdict, body["verdict"]), codec.load(str, body.get("hub") or "")
        return UnreachedReport(int(body["unreached"]), float(body["seconds"]), verdict, hub)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


# --- srun's messages about a step's tasks, one per node

SETTLE = 1.0
"""Seconds before an end is reported, because srun may write the reason after it."""
_ENDED = re.compile(r"srun: error: \S+: tasks? ([\d,-]+): (.+)")
_FAILED = re.compile(r"srun: error: Task launch for \S+ failed on node ([^\s:]+)(: .+)")
_OVER = re.compile(r"Job step aborted|CANCELLED AT")
_DAEMON = re.compile(
    r"(?:(?P<label>\d+): )?"
    r"(?:slurmstepd-(?P<name>\S+?): (?:error: )?|\[\d{4}-\d\d-\d\dT[\d:.]+\] error: )(?P<text>.*)"
)
"""A line of slurmstepd. Slurm 26.05 begins it with the time, as in its log, and no longer names the node."""
_LABELLED = re.compile(r"(\d+): (.*)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_REFUSED = re.compile(r"code (1|126|127)$")
"""Exit codes of a shell, and of the OCI runtimes that it starts."""
_STOPPED = f"Exited with exit code {int(Exit.STOPPED)}"
_OURS = "ddplaunch-node "
"""Prefix of lines that the batch script itself makes a node print."""
_CONTAINER = _OURS + "container"
_KEPT = 4
UNLAUNCHED = "Task launch failed"
"""Prefix of `how` for a task that srun could not start."""


def daemon_text(line: str) -> str:
    """Return what Slurm's daemon of a step says in this line; empty for any other line."""
    daemon = _DAEMON.match(line)
    return daemon["text"] if daemon is not None else ""


class Ended(NamedTuple):
    """A node's task that has ended, or could not be launched."""

    node: int
    how: str  # in srun's words: "Exited with exit code 1"
    last_lines: Sequence[str] = ()  # the task's, or those of Slurm's daemon on its node
    by: str = "srun"  # the source of `how`

    @property
    def launched(self) -> bool:
        """Whether the task has run at all."""
        return not self.how.startswith(UNLAUNCHED)


class StepTasks:
    """The tasks of a step. `names`: the job's nodes, one for each task, in order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._ended: dict[int, tuple[float, str]] = {}
        self._lines: dict[int, deque[str]] = {}
        self._contained = False  # Slurm itself starts a container for each task, before any of our words
        self._ran: set[int] = set()  # nodes whose task has got as far as these lines
        self._over = False  # the whole step is being ended, so later ends are not faults of tasks

    def add(self, lines: Iterable[bytes], now: float) -> None:
        """Read lines from srun, with or without labels."""
        for line in lines:
            self._take(_COLOUR.sub("", line.decode(errors="replace")).rstrip(), now)

    def ended(self, now: float) -> list[Ended]:
        """Return the tasks that ended badly before the whole step did, in node order."""
        return [
            Ended(node, how, self._words(node, how))
            for node, (at, how) in sorted(self._ended.items())
            if now - at >= SETTLE
        ]

    def _take(self, line: str, now: float) -> None:
        self._contained = self._contained or line == _CONTAINER
        self._over = self._over or _OVER.search(line) is not None
        ended, unlaunched = _ENDED.match(line), _FAILED.match(line)
        if ended is not None and ended[2] != _STOPPED:
            self._end(_numbers(ended[1]), ended[2], now)
        elif unlaunched is not None:
            self._end(self._numbers_of(unlaunched[1]), UNLAUNCHED + unlaunched[2], now)
        elif not line.startswith("srun: "):
            self._keep(line)

    def _end(self, nodes: Iterable[int], how: str, now: float) -> None:
        for node in nodes:
            if not self._over and 0 <= node < len(self._names):
                self._ended.setdefault(node, (now, how))

    def _keep(self, line: str) -> None:
        daemon, labelled = _DAEMON.match(line), _LABELLED.match(line)
        if daemon is not None and daemon["name"]:
            nodes, text = self._numbers_of(daemon["name"]), daemon["text"]
        elif daemon is not None:
            nodes, text = [int(daemon["label"] or -1)], daemon["text"]
        elif labelled is not None:
            nodes, text = [int(labelled[1])], labelled[2]
        else:
            nodes, text = [-1], line  # the node is not known
        if text.startswith(_OURS):
            self._ran.update(nodes)
            return
        for node in nodes:
            self._lines.setdefault(node, deque(maxlen=_KEPT)).append(text)

    def _words(self, node: int, how: str) -> list[str]:
        """Return the node's lines. Lines without a label are its own if no other node has ended."""
        unlabelled = self._lines.get(-1, ()) if len(self._ended) == 1 else ()
        lines = list(self._lines.get(node) or unlabelled)
        refused = node not in self._ran and (how.startswith(UNLAUNCHED) or _REFUSED.search(how))
        if self._contained and refused and "TaskProlog" not in str(lines):
            lines.append(f"error: container: {(lines or [how])[-1].rpartition(' msg=')[2]}")
        return lines

    def _numbers_of(self, name: str) -> list[int]:
        return [number for number, each in enumerate(self._names) if each == name]


def _numbers(text: str) -> list[int]:
    """Return the numbers in '0', '1-3' or '0,2-3'."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            numbers += range(int(first), int(last if last.isdecimal() else first) + 1)
    return numbers
