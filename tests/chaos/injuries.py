"""Finds the processes of a job by their roles, and hits them. Needs to see them all: this machine's root."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import scenario as roles
from tests.chaos.scenario import Injury

MARK = "DDPLAUNCH_CHAOS"
"""The variable by which a job's processes are found, wherever they were started."""
_SETTLED = 3.0
"""Seconds after which a process has its environment: between fork and exec it has its parent's."""
_VERBS = {"local": roles.HOST, "hub": roles.HUB, "gate": roles.GATE}


@dataclass(frozen=True)
class Process:
    """`node`: None where it belongs to none."""

    pid: int
    role: str
    node: int | None
    rank: int | None
    words: str


class Search:
    """Finds all living processes that `belong` to a job, by their environment, as often as it is called.

    A process that does not belong seconds after it was first seen will not later: reading it again and again
    would cost more than the job.
    """

    def __init__(self, belong: Callable[[dict[str, str]], bool]) -> None:
        self._belong = belong
        self._first_seen: dict[int, float] = {}
        self._strangers: set[int] = set()

    def __call__(self) -> list[Process]:
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._strangers &= there
        self._first_seen = {pid: self._first_seen.get(pid, time.monotonic()) for pid in there}
        found = []
        for pid in there - self._strangers:
            with contextlib.suppress(OSError, ValueError):
                environ = _environ(pid)
                if not self._belong(environ):
                    if time.monotonic() - self._first_seen[pid] > _SETTLED:
                        self._strangers.add(pid)
                elif _lives(pid):
                    found.append(_process(pid, environ))
        return found


def hit(injury: Injury, among: Iterable[Process]) -> list[Process]:
    """The processes that this injury hits."""
    if injury.target == roles.NODE:
        whole = (roles.GUARDIAN, roles.SUPERVISOR, roles.TORCHRUN, roles.RANK)
        return [each for each in among if each.node == injury.node and each.role in whole]
    found = [each for each in among if each.role == injury.target]
    if injury.target in roles.PER_NODE:
        return [each for each in found if each.node == injury.node]
    if injury.target == roles.RANK:
        return [each for each in found if each.rank == injury.rank]
    return found


def send(targets: Iterable[Process], number: signal.Signals) -> None:
    """A signal to all that still live."""
    for each in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, number)


def end(targets: Iterable[Process]) -> None:
    """SIGKILL."""
    send(targets, signal.SIGKILL)


def _process(pid: int, environ: dict[str, str]) -> Process:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    node = environ.get("DDPLAUNCH_NODE")
    rank = environ.get("RANK")
    role = _role(pid, words, rank is not None)
    owner = None if role in (roles.HUB, roles.HOST, roles.CLI) or node is None else int(node)
    return Process(pid, role, owner, int(rank) if role == roles.RANK and rank else None, " ".join(words))


def _role(pid: int, words: list[str], ranked: bool) -> str:
    if any(word.endswith("agent.pyz") for word in words[:5]):
        verb = next(word for word in words[words.index(_agent(words)) + 1 :] if word)
        if verb == "run":
            return roles.SUPERVISOR if _is_run(_parent(pid)) else roles.GUARDIAN
        return _VERBS.get(verb, verb)
    if words[0].endswith("bash") and any(word.endswith("slurm_script") for word in words):
        return roles.HOST
    if words[0] == "srun":
        return roles.SRUN
    if "torch.distributed.run" in words:
        return roles.TORCHRUN
    if ranked and any(word.endswith("train.py") for word in words):
        return roles.RANK
    return roles.CLI if "ddplaunch" in " ".join(words[:3]) else "other"


def _agent(words: list[str]) -> str:
    return next(word for word in words if word.endswith("agent.pyz"))


def _is_run(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.endswith(b"agent.pyz") for word in words) and b"run" in words
    return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")


def _environ(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
