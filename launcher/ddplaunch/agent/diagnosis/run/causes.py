"""Finds why each rank ended: its own failure, or a peer that went away first. The rules in `ends` ask it.

Precise times decide between ranks: those of exceptions and exits, which the hub has put on one clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import (
    Exited,
    Frame,
    Handler,
    JobEvidence,
    Raised,
    RankEvidence,
    Stack,
)
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import JobView, without_numbers
from ddplaunch.agent.system import phrases

TOGETHER = 2.0
"""Seconds within which equal ends of several ranks count as one event."""
_ONE_LOOK = 0.5
"""Seconds that one look of a busy supervisor may take: it dates what it sees at once rank by rank."""
_KILL, _ABORT, _SEGV, _TERM = 9, 6, 11, 15
_OOM_KILL = re.compile(r"Kill(?:ed)? process (\d+)")
"""What Linux logs when it kills a process because memory ran out, and in no other case."""
_SOURCE_LINE = re.compile(r"^(\[[^\] ]*\.(cc|cpp|h|cu):\d+\] |NCCL error in: \S+:\d+, )")
"""Gloo and c10d begin their messages with this: the line of their own source."""
_ADVICE = re.compile(r"\s*(Search for `cuda|CUDA kernel errors might be).*", re.DOTALL)
"""Advice that torch adds to the message of every CUDA error."""


@dataclass(frozen=True)
class Cause:
    """One rank's end, seen by itself. `kind`: memory | signal | exception | code."""

    rank: int
    kind: str
    at: float
    what: str  # the same for ranks that ended for the same reason
    raised: Optional[Raised] = None
    loader: Optional[int] = None  # pid of the DataLoader worker that was killed in its place


def first_ends(view: JobView, kind: str) -> list[Cause]:
    """Return the earliest cause and those like it, if it is of this kind."""
    causes = causes_of(view)
    if not causes or causes[0].kind != kind:
        return []
    earliest = causes[0]
    return [
        cause
        for cause in causes
        if (cause.kind, cause.what) == (earliest.kind, earliest.what)
        and (cause.kind != "signal" or cause.at - earliest.at <= TOGETHER)
    ]


def causes_of(view: JobView) -> list[Cause]:
    """Return every end that is the rank's own, the first one first. An end without a known reason comes last.

    A launcher may have sent SIGKILL because another rank ended, on a node whose clock differs a little.
    """
    found = [cause for number in view.ranks if (cause := _cause(view, number)) is not None]
    return sorted(
        found,
        key=lambda cause: (
            cause.kind == "code",
            cause.at + _ONE_LOOK * (cause.what == "SIGKILL"),
            cause.rank,
        ),
    )


def _cause(view: JobView, number: int) -> Optional[Cause]:
    rank = view.ranks[number]
    uncaught = [raised for raised in rank.raised if not raised.handled]
    for raised in uncaught:
        worker = LOADER_KILLED.search(raised.message)
        if worker:
            before = LOADER_KILLED.search(raised.cause)  # torch raises it "from" an error that has the signal
            named = before[2] if before and before[1] == worker[1] else None
            return _loader_killed(view, number, raised, int(worker[1]), worker[2] or named or "")
        if not is_consequence(raised):
            return Cause(number, "exception", raised.at, same_failure(raised), raised)
        hidden = first_held(view, number, raised.frames)
        if hidden is not None:
            first = replace(hidden.raised, at=raised.at)
            return Cause(number, "exception", first.at, same_failure(first), first)
    end = rank.exit
    if end is None or end.by_us:
        return None
    if uncaught and all(raised.type == "KeyboardInterrupt" for raised in uncaught):
        return Cause(number, "signal", uncaught[0].at, "SIGINT")
    if end.signal == _KILL and _killed_for_memory(view, number, rank.pid):
        return Cause(number, "memory", end.at, "memory")
    if end.signal == _TERM and (uncaught or _was_sent_away(view, number, end.at)):
        return None
    if end.signal is not None and not (end.signal in (_ABORT, _SEGV) and _gave_up(rank)):
        return Cause(number, "signal", end.at, phrases.signal_name(end.signal))
    return _exit_code(rank, end) if end.code and not uncaught else None


def _exit_code(rank: RankEvidence, end: Exited) -> Optional[Cause]:
    """Return the cause of an exit code without an exception; in a handler, sys.exit says what was handled."""
    handled = [each for each in rank.left[1:] if each.type.rpartition(".")[2] not in _SENT_AWAY]
    if leaves_for_peer(rank) or speaks_of_peer(rank.last_output):
        return None
    if handled:
        return Cause(rank.rank, "exception", handled[0].at, same_failure(handled[0]), handled[0])
    return Cause(rank.rank, "code", end.at, f"exit code {end.code}")


class Held(NamedTuple):
    """What a rank has raised, and the line that has run since, in a handler of this kind (`Handler.kind`)."""

    raised: Raised
    kind: str
    line: Frame


def first_held(view: JobView, number: int, lines: Sequence[Frame]) -> Optional[Held]:
    """Return the first of the exceptions in flight that a handler holds back in which one of these lines is.

    `lines`: where the rank is, or where it raised what hides the exception. None if it came from a peer that
    is gone.
    """
    if any(map(is_consequence, view.ranks[number].in_flight)):
        return None
    handlers = view.nodes[view.node_of[number]].handlers
    for raised in reversed(view.ranks[number].in_flight):
        for line in lines:
            for handler in handlers.get(line.file, ()):
                if _is_within(line, handler.lines) and _came_from(raised, line, handler):
                    return Held(raised, handler.kind, line)
    return None


def _came_from(raised: Raised, line: Frame, handler: Handler) -> bool:
    """Whether it was raised in the code that this handler guards, in the handler's own function."""
    where = (line.name, line.file)
    return any(
        (each.name, each.file) == where and _is_within(each, handler.guarded) for each in raised.frames
    )


def _is_within(line: Frame, lines: Sequence[int]) -> bool:
    return [*lines[:1]] <= [line.line] <= [*lines[-1:]]


def leaves_for_peer(rank: RankEvidence) -> bool:
    """Whether it called sys.exit while it handled an exception that says that another rank is gone."""
    return any(speaks_of_peer(each.message) and is_consequence(each) for each in rank.left[1:])


def _loader_killed(view: JobView, number: int, raised: Raised, worker: int, by: str) -> Cause:
    if by in ("", "Killed") and _killed_for_memory(view, number, worker):
        return Cause(number, "memory", raised.at, "memory", raised, worker)
    if not by:  # it may have ended by itself: torch does not say
        return Cause(number, "exception", raised.at, same_failure(raised), raised)
    return Cause(number, "signal", raised.at, _SPOKEN.get(by.strip(), by), raised, worker)


def _killed_for_memory(view: JobView, number: int, pid: int) -> bool:
    node = view.nodes[view.node_of[number]]
    return node.oom_kills > 0 or any(
        found is not None and int(found[1]) == pid for found in map(_OOM_KILL.search, node.kernel)
    )


def _was_sent_away(view: JobView, number: int, at: float) -> bool:
    """Whether a launcher has ended the rank by SIGTERM, because another one had ended badly.

    torchrun does so on its own node, mpirun on all nodes. One look may see both ends, and the rank that ended
    first may never have been seen.
    """
    return bool(view.absent) or any(
        peer.rank != number
        and peer.exit is not None
        and peer.exit.code != 0
        and peer.exit.at <= at + _ONE_LOOK
        and peer.exit.signal != _TERM
        for peer in view.ranks.values()
    )


def _gave_up(rank: RankEvidence) -> bool:
    """Whether NCCL's watchdog or Gloo aborted the process because a peer is gone: then the peer is to blame.

    A rank that has raised an error about a gone peer may also crash, in torch's threads while Python ends.
    """
    return speaks_of_peer(rank.last_output) or any(
        is_consequence(raised) for raised in rank.raised if not raised.handled
    )


def same_failure(raised: Raised) -> str:
    """Return a text that is the same for the same failure on several ranks, although numbers may differ."""
    return f"{raised.type}: {without_numbers(raised.message)[:120]}"


def left_behind(view: JobView) -> dict[int, float]:
    """Return the ranks that need a peer that is gone, each with the time at which it noticed, or now."""
    found = dict.fromkeys(view.waiting, view.evidence.at)
    for number, rank in view.ranks.items():
        noticed = [raised.at for raised in rank.raised if not raised.handled]
        end = rank.exit
        if end is not None and (end.code or end.signal or (end.by_us and end.code is None)):
            noticed.append(end.at)
        if noticed and _cause(view, number) is None:
            found[number] = min(noticed)
    return dict(sorted(found.items()))


def before_timeouts(evidence: JobEvidence) -> Optional[JobEvidence]:
    """Return the evidence as it was before ranks timed out in a collective; None when none has.

    Ranks that gave up are put back where they raised their exceptions, and ranks that were then ended where
    they were. A rank that ended in another way, or without a trace of where, stays dead: no rank waits for
    it.
    """
    ranks = [rank for node in evidence.evidence for rank in node.ranks]
    if not any(_timed_out(rank) for rank in ranks):
        return None
    nodes = [replace(node, ranks=[_revived(rank) for rank in node.ranks]) for node in evidence.evidence]
    return replace(evidence, evidence=nodes)


def _timed_out(rank: RankEvidence) -> bool:
    return any(timed_out(raised.message) for raised in rank.raised if not raised.handled) or (
        not rank.alive and timed_out(rank.last_output)
    )


def _revived(rank: RankEvidence) -> RankEvidence:
    if _timed_out(rank):
        frames = [raised.frames for raised in rank.raised if timed_out(raised.message)]
        waits = [each for each in frames if stacks.collective(each) or stacks.in_init(each)]
        return replace(rank, alive=True, stacks=[Stack("MainThread", True, waits[-1])]) if waits else rank
    sent_away = rank.exit is not None and (rank.exit.by_us or rank.exit.signal == _TERM)
    return replace(rank, alive=True) if sent_away else rank


def words_of(raised: Raised) -> str:
    """Return an exception's message without what torch puts around every message.

    Of a traceback in it only the end is left: 'Caught KeyError in DataLoader worker process 0: KeyError: 7'.
    """
    plain = _ADVICE.sub("", _SOURCE_LINE.sub("", raised.message))
    head, found, carried = plain.partition(_CARRIED)
    ends = _CARRIED_END.findall(carried)
    if not found or not ends:
        return plain
    told = _FAILED_RANKS.sub("", " ".join(head.split()[:-1] if head.endswith("Original ") else head.split()))
    return ": ".join(part for part in (told.rstrip(".:"), ends[-1]) if part)


def site_of(raised: Raised) -> Optional[Frame]:
    """Return the user's line that has failed: the innermost of a traceback in the message, as that of a
    DataLoader's worker; else of the exception itself.
    """
    carried = raised.message.rpartition(_CARRIED)[2] if _CARRIED in raised.message else ""
    frames = [Frame(name, file, int(number)) for file, number, name in _CARRIED_LINE.findall(carried)]
    its = stacks.users(frames[::-1])
    return stacks.user_frame(its) if stacks.is_own(its) else stacks.user_frame(raised.frames)


def failed_ranks(raised: Raised) -> list[int]:
    """Return the ranks, in the group that saved or loaded, for which all of torch's checkpoint has failed."""
    found = _FAILED_RANKS.search(raised.message)
    return sorted(map(int, re.findall(r"\d+", found[0]))) if found else []


_CARRIED = "Traceback (most recent call last):"
_CARRIED_LINE = re.compile(r'^ *File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_CARRIED_END = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)
_FAILED_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[[\d, ]+\]\)")
"""torch/distributed/checkpoint/api.py; each rank raises it with the tracebacks of those that have failed."""


def complaint(rank: RankEvidence) -> str:
    """Return the reason that the rank itself gave for its end."""
    for raised in reversed(rank.raised):
        if not raised.handled:
            return f"{raised.type.rpartition('.')[2]}: {phrases.clipped(words_of(raised), 120)}"
    if rank.exit is None:
        return "it lives"
    return phrases.exited(rank.exit)


# --- exceptions and last lines that another rank causes, by going away or never coming
#
# The texts are those of Gloo, NCCL, TCPStore and torchrun, as torch 2.4 to 2.15 print them.


_PEER = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused, remote="
    r"|Application timeout caused pair closure|connectFullMesh failed|Socket is not connected"
    r"|Timed out waiting \d+ms for (recv|send) operation"
    r"|Timed out after \d+ seconds waiting for clients|client socket has timed out"
    r"|wait timeout after \d+ms|Socket Timeout|[Ff]ailed to recv, got 0 bytes|Connection was likely closed"
    r"|failed to pass monitoredBarrier|successfully reached monitoredBarrier, but received errors"
    r"|TCPStore server has shut down|recvValue failed|sendBytes failed"
    r"|NCCL communicator (was|is) aborted|ncclRemoteError|remote process exited|ncclSystemError"
    r"|Watchdog caught collective operation timeout|collective operation timeout"
    r"|observed an exception|to avoid data inconsistency, we are taking the entire process down"
    r"|Work ran for \d+ milliseconds before timing out"
)
_CARRIERS = frozenset(["RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError"])
"""torch raises these for its own network. A ConnectionResetError, say, comes from the user's connections."""
_SENT_AWAY = frozenset(["SignalException", "KeyboardInterrupt", "SystemExit"])

_TIMEOUT = re.compile(
    r"Timed out waiting \d+ms for (recv|send) operation|wait timeout after \d+ms"
    r"|Work ran for \d+ milliseconds|[Cc]ollective operation timeout|failed to pass monitoredBarrier"
)
MISMATCH = re.compile(
    r"Is there a distributed collective mismatch in your code|Detected mismatch between collectives on ranks"
    r"|preamble\.length <= \w+\.nbytes\. \d+ vs \d+"
)
"""What a rank prints when it, or TORCH_DISTRIBUTED_DEBUG=DETAIL, finds that its peer does something else.

Gloo ends the process that gets more than it expects; before torch 2.8 it gives only the sizes.
"""
_SPOKEN = {
    "Aborted": "SIGABRT",
    "Alarm clock": "SIGALRM",
    "Broken pipe": "SIGPIPE",
    "Bus error": "SIGBUS",
    "CPU time limit exceeded": "SIGXCPU",
    "File size limit exceeded": "SIGXFSZ",
    "Floating point exception": "SIGFPE",
    "Hangup": "SIGHUP",
    "Illegal instruction": "SIGILL",
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Terminated": "SIGTERM",
    "User defined signal 1": "SIGUSR1",
    "User defined signal 2": "SIGUSR2",
}
"""Signals as torch speaks of them, by glibc's strsignal(3)."""
LOADER_KILLED = re.compile(
    r"DataLoader worker \(pid\(?s?\)? *(\d+)[\d, ]*\) (?:is killed by signal: (\w+[ \w]*)|exited)"
)
"""'DataLoader worker (pid 812) is killed by signal: Killed.', '… (pid(s) 812, 813) exited unexpectedly'."""


def last_words(rank: RankEvidence) -> list[str]:
    """Return the last line that a rank printed, and its uncaught exceptions, which may have more lines."""
    return [rank.last_output, *(raised.message for raised in rank.raised if not raised.handled)]


def mismatch_reports(view: JobView) -> dict[int, str]:
    """Return the text, by rank, in which a rank said that its peer had made another call."""
    return {
        number: text for number in view.ranks for text in spoken_by(view, number) if MISMATCH.search(text)
    }


def spoken_by(view: JobView, number: int) -> list[str]:
    """Return the last words of a rank, and those that only it can have said.

    Ranks that write to one pipe, as those of mp.spawn do, have no last line of their own. What the only one
    that ended by SIGABRT on its node has printed is among the last lines of them all.
    """
    node = view.nodes[view.node_of[number]]
    aborted = [rank.rank for rank in node.ranks if rank.exit is not None and rank.exit.signal == _ABORT]
    shared = node.launch_output if aborted == [number] else []
    return [*last_words(view.ranks[number]), *shared]


def is_consequence(raised: Raised) -> bool:
    """Whether this exception only says that another rank is gone or late, or that the job is stopped."""
    kind = raised.type.rpartition(".")[2]
    carries = kind in _CARRIERS or "::" in kind  # C++, as gloo::IoException
    return kind in _SENT_AWAY or (carries and speaks_of_peer(raised.message))


def timed_out(text: str) -> bool:
    """Whether torch's message says that a peer lives, or lived, and did not come in time."""
    return _TIMEOUT.search(text) is not None


def speaks_of_peer(text: str) -> bool:
    """Whether torch's message blames a peer that is gone or never came."""
    return _PEER.search(text) is not None and MISMATCH.search(text) is None
