"""Finds why each rank ended: its own failure, or a peer that went away first. The rules in `ends` ask it.

Precise times decide between ranks: those of exceptions and exits, already put on one clock by the hub.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from ddplaunch.agent.contract import JobEvidence, Raised, RankEvidence, Stack
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases

TOGETHER = 2.0
"""Seconds within which equal ends of several ranks count as one event."""
_ONE_LOOK = 0.5
"""Seconds that one look of a busy supervisor may take: what it sees at once is dated rank by rank."""
_KILL, _ABORT, _SEGV, _TERM = 9, 6, 11, 15
_OOM_KILL = re.compile(r"Kill(?:ed)? process (\d+)")
"""What Linux logs when it kills for memory, and for nothing else."""
_SOURCE_LINE = re.compile(r"^(\[[^\] ]*\.(cc|cpp|h|cu):\d+\] |NCCL error in: \S+:\d+, )")
"""What Gloo and c10d begin their messages with: the line of their own source."""
_ADVICE = re.compile(r"\s*(Search for `cuda|CUDA kernel errors might be).*", re.DOTALL)
"""Advice that torch adds to the message of every CUDA error."""


@dataclass(frozen=True)
class Cause:
    """One rank's end, seen by itself. `kind`: memory | signal | exception | code."""

    rank: int
    kind: str
    at: float
    what: str  # equal for ranks that ended by the same thing
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

    With SIGKILL a launcher may have answered another rank's end, on a node whose clock is not quite ours.
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
            before = LOADER_KILLED.search(raised.cause)  # torch's own "from": it has the signal
            named = before[2] if before and before[1] == worker[1] else None
            return _loader_killed(view, number, raised, int(worker[1]), worker[2] or named or "")
        if not is_consequence(raised):
            return Cause(number, "exception", raised.at, same_failure(raised), raised)
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
    if end.code and not uncaught and not speaks_of_peer(rank.last_output):
        return Cause(number, "code", end.at, f"exit code {end.code}")
    return None


def _loader_killed(view: JobView, number: int, raised: Raised, worker: int, by: str) -> Cause:
    if by in ("", "Killed") and _killed_for_memory(view, number, worker):
        return Cause(number, "memory", raised.at, "memory", raised, worker)
    if not by:  # it may have left by itself: torch does not say
        return Cause(number, "exception", raised.at, same_failure(raised), raised)
    name = {"Killed": "SIGKILL", "Bus error": "SIGBUS", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT"}
    return Cause(number, "signal", raised.at, name.get(by.strip(), by), raised, worker)


def _killed_for_memory(view: JobView, number: int, pid: int) -> bool:
    node = view.nodes[view.node_of[number]]
    return node.oom_kills > 0 or any(
        found is not None and int(found[1]) == pid for found in map(_OOM_KILL.search, node.kernel)
    )


def _was_sent_away(view: JobView, number: int, at: float) -> bool:
    """A launcher sends SIGTERM to its ranks once one has ended badly; one look may see both ends.

    torchrun does so on its own node, mpirun on all nodes. That one may have ended before it was ever seen.
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
    """NCCL's watchdog and Gloo abort the process when a peer is gone: then the peer is to blame.

    A rank that has raised that its peer is gone may crash as well, in torch's threads while Python ends.
    """
    return speaks_of_peer(rank.last_output) or any(
        is_consequence(raised) for raised in rank.raised if not raised.handled
    )


def same_failure(raised: Raised) -> str:
    """Return what is equal for the same failure of several ranks: numbers in the text may differ."""
    text = "".join(character for character in raised.message if not character.isdigit())
    return f"{raised.type}: {text[:120]}"


def left_behind(view: JobView) -> dict[int, float]:
    """Ranks that need a peer that is gone, with the time at which they noticed, or now."""
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

    Those who gave up stand where their exceptions were raised, those then sent away where they stood. Who
    ended otherwise, or without a trace of where, stays dead: no rank waits for it.
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
    """Return an exception's message without what torch puts around each."""
    return _ADVICE.sub("", _SOURCE_LINE.sub("", raised.message))


def complaint(rank: RankEvidence) -> str:
    """Return what the rank itself gave as the reason of its end."""
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
    r"|failed to pass monitoredBarrier|TCPStore server has shut down|recvValue failed|sendBytes failed"
    r"|NCCL communicator (was|is) aborted|ncclRemoteError|remote process exited|ncclSystemError"
    r"|Watchdog caught collective operation timeout|collective operation timeout"
    r"|observed an exception|to avoid data inconsistency, we are taking the entire process down"
    r"|Work ran for \d+ milliseconds before timing out"
)
_CARRIERS = frozenset(["RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError"])
"""Torch raises these for its own network. A ConnectionResetError, say, is of the user's own connections."""
_SENT_AWAY = frozenset(["SignalException", "KeyboardInterrupt", "SystemExit"])

_TIMEOUT = re.compile(
    r"Timed out waiting \d+ms for (recv|send) operation|wait timeout after \d+ms"
    r"|Work ran for \d+ milliseconds|[Cc]ollective operation timeout|failed to pass monitoredBarrier"
)
MISMATCH = re.compile(
    r"Is there a distributed collective mismatch in your code|Detected mismatch between collectives on ranks"
)
"""A rank's words when it, or TORCH_DISTRIBUTED_DEBUG=DETAIL, finds that its peer does something else."""
LOADER_KILLED = re.compile(
    r"DataLoader worker \(pid\(?s?\)? *(\d+)[\d, ]*\) (?:is killed by signal: (\w+[ \w]*)|exited)"
)
"""'DataLoader worker (pid 812) is killed by signal: Killed.', '… (pid(s) 812, 813) exited unexpectedly'."""


def last_words(rank: RankEvidence) -> list[str]:
    """Return the last line that a rank printed, and its uncaught exceptions, which may have more lines."""
    return [rank.last_output, *(raised.message for raised in rank.raised if not raised.handled)]


def is_consequence(raised: Raised) -> bool:
    """Whether this exception only says that another rank is gone, late, or that the job is being stopped."""
    kind = raised.type.rpartition(".")[2]
    carries = kind in _CARRIERS or "::" in kind  # C++, as gloo::IoException
    return kind in _SENT_AWAY or (carries and speaks_of_peer(raised.message))


def timed_out(text: str) -> bool:
    """Whether these words of torch say that a peer lives, or lived, and did not come in time."""
    return _TIMEOUT.search(text) is not None


def speaks_of_peer(text: str) -> bool:
    """Whether these words of torch blame a peer that is gone or never came."""
    return _PEER.search(text) is not None and MISMATCH.search(text) is None
