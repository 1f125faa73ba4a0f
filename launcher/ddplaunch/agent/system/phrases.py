"""Parts of sentences: ranks, nodes, source lines, durations, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from ddplaunch.agent.contract import Exited, Frame
from ddplaunch.agent.system.resolve import is_loopback, numeric

_NAMED = 4
"""Nodes up to which a sentence names each; more would bury what it says."""

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""By their numbers on Linux (signal(7)): a bundle may be read on another system than it was written on."""


def listing(items: Sequence[str], word: str = "and") -> str:
    """'a', 'a and b', 'a, b and c'."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def ranks(numbers: Iterable[int]) -> str:
    """'rank 3', 'ranks 2 and 5', 'ranks 0-3 and 7'."""
    return _numbered("rank", numbers)


def node(number: int, names: Sequence[str] = (), address: str = "") -> str:
    """'node 2', 'node 2 (10.0.0.5)', and where the nodes have names 'node 2 (n3)', 'node 2 (n3, 10.0.0.5)'.

    `names` are the job's, in node order.
    """
    called = ", ".join(filter(None, (name(number, names), address)))
    return f"node {number} ({called})" if called else f"node {number}"


def nodes(numbers: Iterable[int], names: Sequence[str] = ()) -> str:
    """'node 3 (n4)', 'nodes 2 and 5', 'nodes 2 (n3) and 5 (n6)', 'nodes 0-511'."""
    ordered = sorted(set(numbers))
    if not any(name(number, names) for number in ordered) or len(ordered) > _NAMED:
        return _numbered("node", ordered)
    each = [node(number, names).partition(" ")[2] for number in ordered]
    return f"node{'s' * (len(each) > 1)} {listing(each)}"


def name(number: int, names: Sequence[str]) -> str:
    """Empty where there is none. A loopback address is none: the nodes of one machine share it.

    Without its domain where node 0 has the same.
    """
    found = names[number] if 0 <= number < len(names) else ""
    if is_loopback(found):
        return ""
    host, dot, domain = found.partition(".")
    is_whole = " " in found or numeric(found)  # with its machine, or an address
    return host if dot and not is_whole and names[0].partition(".")[2] == domain else found


def _numbered(noun: str, numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    if not ordered:
        return f"no {noun}"
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts: list[str] = []
    for span in spans:
        parts += [f"{span[0]}-{span[-1]}"] if len(span) > 2 else [str(number) for number in span]
    return f"{noun}{'s' if len(ordered) > 1 else ''} {listing(parts)}"


def one_or(numbers: Sequence[object], one: str, many: str) -> str:
    """The verb for one rank, or for several."""
    return one if len(numbers) == 1 else many


def count(number: int, noun: str) -> str:
    """'no collective', '1 collective', '2 collectives'."""
    return f"no {noun}" if number == 0 else f"{number} {noun}{'s' * (number != 1)}"


def others(number_of_others: int) -> str:
    """Whom a sentence has not named yet."""
    return "the other" if number_of_others == 1 else "the others"


def place(frame: Frame) -> str:
    """'evaluate (train.py:140)', '(train.py:140)' at module level."""
    name = frame.name if frame.name != "<module>" else "the script"
    return f"{name} ({frame.file.rpartition('/')[2]}:{frame.line})"


def at(frame: Optional[Frame]) -> str:
    """' (train.py:140)', or nothing when the place is not known."""
    return f" ({frame.file.rpartition('/')[2]}:{frame.line})" if frame else ""


def span(seconds: float) -> str:
    """'0.4 s', '12 s', '4 min', '3 h': as exact as a person wants it."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def size(number: float) -> str:
    """'64 MiB', '15.9 GiB'."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def signal_name(number: int) -> str:
    """'SIGKILL' of 9."""
    return _SIGNALS.get(number, f"signal {number}")


def exited(end: Exited) -> str:
    """'SIGKILL', 'exit code 3'."""
    if end.signal:
        return signal_name(end.signal)
    return "nobody saw how" if end.code is None else f"exit code {end.code}"


def clipped(text: str, limit: int = 200) -> str:
    """One line of at most `limit` characters: what user code says may be long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
