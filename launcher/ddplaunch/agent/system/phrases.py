"""Parts of sentences: ranks, nodes, source lines, durations, sizes."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Sequence
from typing import Optional

from ddplaunch.agent.contract import REGROUP, Exit, Exited, Frame
from ddplaunch.agent.system import subjects
from ddplaunch.agent.text import quantities
from ddplaunch.agent.text.quantities import size as size
from ddplaunch.agent.text.quantities import span as span

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    26: "SIGVTALRM",
    27: "SIGPROF",
    31: "SIGSYS",
}
"""By their numbers on Linux (signal(7)): a bundle may be read on another system than the one that wrote
it."""

_ENDS = {
    Exit.OK: "has finished",
    Exit.NODE_AT_FAULT: "has failed, for a node or the network",
    Exit.OUT_OF_MEMORY: "has failed for want of memory",
    Exit.HANG: "hung and was ended",
    Exit.STOPPED: "was stopped",
    REGROUP: "ends for newcomers",
}


def ranks(numbers: Iterable[int]) -> str:
    """'rank 3', 'ranks 2 and 5', 'ranks 0-3 and 7'."""
    return str(subjects.ranks(numbers))


def node(number: int, names: Sequence[str] = (), address: str = "") -> str:
    """'node 2 (n3, 10.0.0.5)'."""
    return str(subjects.node(number, names, address))


def nodes(numbers: Iterable[int], names: Sequence[str] = ()) -> str:
    """'nodes 2 (n3) and 5 (n6)'."""
    return str(subjects.nodes(numbers, names))


def one_or(numbers: Sequence[object], one: str, many: str) -> str:
    """Return the verb for one rank, or for several."""
    return one if len(numbers) == 1 else many


def clock(at: float) -> str:
    """'12:00:03', in the time zone of whoever reads it."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def count(number: int, noun: str) -> str:
    """'no collective', '1 collective', '2 collectives'."""
    return f"no {noun}" if number == 0 else quantities.count(number, noun)


def others(number_of_others: int) -> str:
    """Whom a sentence has not named yet."""
    return "the other" if number_of_others == 1 else "the others"


def place(frame: Frame) -> str:
    """'evaluate (train.py:140)', '(train.py:140)' at module level."""
    name = frame.name if frame.name != "<module>" else "the script"
    return f"{name} ({frame.file.rpartition('/')[2]}:{frame.line})"


def apart(one: str, other: str) -> tuple[str, str]:
    """Return two paths without the folders that both begin with."""
    same = posixpath.commonpath([posixpath.dirname(one), posixpath.dirname(other)])
    return posixpath.relpath(one, same), posixpath.relpath(other, same)


def at(frame: Optional[Frame]) -> str:
    """' (train.py:140)', or nothing when the place is not known."""
    return f" ({frame.file.rpartition('/')[2]}:{frame.line})" if frame else ""


def signal_name(number: int) -> str:
    """'SIGKILL' of 9."""
    return _SIGNALS.get(number, f"signal {number}")


def ended(code: int, why: str = "") -> str:
    """'has failed' for an Exit: how a job or a node has ended. The numbers themselves are only for
    schedulers.

    `why`: of a job's evidence. Ranks whose calls differ may crash before anybody sees them hang.
    """
    return "has failed" if (code, why) == (Exit.HANG, "death") else _ENDS.get(code, "has failed")


def exited(end: Exited) -> str:
    """'SIGKILL', 'exit code 3'."""
    if end.signal:
        return signal_name(end.signal)
    return "nobody saw how" if end.code is None else f"exit code {end.code}"


def clipped(text: str, limit: int = 200) -> str:
    """Return one line of at most `limit` characters, because text from user code may be long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
