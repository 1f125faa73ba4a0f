"""Exceptions and last lines that another rank causes, by going away or never coming.

The texts are those of Gloo, NCCL, TCPStore and torchrun, as torch 2.4 to 2.15 print them.
"""

from __future__ import annotations

import re

from ddplaunch.agent.contract import Raised, RankEvidence

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
