"""The messages of the protocol: one dataclass for each, by sender and receiver.

A line of the protocol has a kind and a body (`transport.protocol`); `Message.pack` makes both from a message,
and `load` makes the message from both. The reader names the ways that it accepts: `load` returns no message
of another way or of an unknown kind.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

from ddplaunch.agent.contract import (
    Beat,
    Bundle,
    CheckIn,
    JobStatus,
    MeshResult,
    MeshTask,
    NodeEvidence,
    RankEvidence,
    RendezvousSettings,
    SmokeRank,
    Torchrun,
    Verdict,
    codec,
)

LONG = 32 * 1024 * 1024
"""Bytes of the longest message: the evidence of a node with many ranks takes a few MiB."""
SHORT = 64 * 1024
"""Bytes of a message with numbers, names, or a sentence."""


class Way(enum.Enum):
    """Sender and receiver of a message."""

    GATE_TO_HUB = 1
    HUB_TO_GATE = 2
    SUPERVISOR_TO_HUB = 3
    HUB_TO_SUPERVISOR = 4
    COMMAND_TO_HUB = 5
    HUB_TO_COMMAND = 6
    PEER_TO_PEER = 7


class Message:
    """Base of all messages. `limit`: the most bytes of one that the hub accepts."""

    kind: ClassVar[str]
    way: ClassVar[Way]
    limit: ClassVar[int]

    def __init_subclass__(cls, kind: str, way: Way, limit: int = SHORT) -> None:
        cls.kind, cls.way, cls.limit = kind, way, limit
        _KINDS[way, kind] = cls

    def pack(self) -> tuple[str, dict[str, Any]]:
        """Return kind and body for a line."""
        return self.kind, codec.dump(self)


_KINDS: dict[tuple[Way, str], type[Message]] = {}


def load(kind: str, body: object, *ways: Way) -> Optional[Message]:
    """Return the message; None when these ways have none of this kind.

    Raises ContractError where the body does not have the shape of its kind.
    """
    message_type = next((_KINDS[way, kind] for way in ways if (way, kind) in _KINDS), None)
    return None if message_type is None else codec.load(message_type, body)


def by_way(way: Way) -> tuple[type[Message], ...]:
    """Return the types of all messages that go this way."""
    return tuple(each for (its, _), each in _KINDS.items() if its == way)


# --- a node's gate and the hub


@dataclass(frozen=True)
class Here(Message, kind="here", way=Way.GATE_TO_HUB):
    """Announces a check-in, in a message so small that it passes any path."""

    node: int


@dataclass(frozen=True)
class CheckingIn(Message, kind="check-in", way=Way.GATE_TO_HUB, limit=LONG):
    check_in: CheckIn


@dataclass(frozen=True)
class MeshResults(Message, kind="mesh-results", way=Way.GATE_TO_HUB, limit=LONG):
    """The results of `Mesh`. `passed`, `links`: see `diagnosis.gate.paths`."""

    results: list[MeshResult]
    passed: dict[str, int] = field(default_factory=dict)
    links: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class SmokeReady(Message, kind="smoke-ready", way=Way.GATE_TO_HUB):
    """All ranks of the node have imported torch. `ports`: rank 0's, by backend; empty on other nodes."""

    ports: dict[str, int]


@dataclass(frozen=True)
class SmokeResults(Message, kind="smoke-results", way=Way.GATE_TO_HUB, limit=LONG):
    ranks: list[SmokeRank]


@dataclass(frozen=True)
class Unbound(Message, kind="unbound", way=Way.GATE_TO_HUB):
    """Node 0 has given up the master port."""


@dataclass(frozen=True)
class Leave(Message, kind="leave", way=Way.GATE_TO_HUB):
    """The gate is being stopped from outside."""

    why: str


@dataclass(frozen=True)
class Waiting(Message, kind="waiting", way=Way.HUB_TO_GATE):
    """The gate waits. `missing`: the first nodes, and `more` besides; `passing`: faults that may pass."""

    missing: list[int] = field(default_factory=list)
    more: int = 0
    passing: list[str] = field(default_factory=list)
    seconds: float = 0.0
    held: str = ""  # a sentence for a newcomer, whose time at the gate begins again with each


@dataclass(frozen=True)
class Mesh(Message, kind="mesh", way=Way.HUB_TO_GATE, limit=LONG):
    """Asks the node to try these paths."""

    tasks: list[MeshTask]


@dataclass(frozen=True)
class SmokeBegin(Message, kind="smoke", way=Way.HUB_TO_GATE):
    """Starts the smoke test: all ranks import torch."""

    agreed: RendezvousSettings
    backends: list[str]


@dataclass(frozen=True)
class SmokeGo(Message, kind="smoke-go", way=Way.HUB_TO_GATE):
    """Has the ranks connect to `address`, on a port for each backend: all ranks have imported torch."""

    address: str
    ports: dict[str, int]


@dataclass(frozen=True)
class SmokeStop(Message, kind="smoke-stop", way=Way.HUB_TO_GATE):
    """A rank elsewhere has failed: asks for the node's results now."""


@dataclass(frozen=True)
class Unbind(Message, kind="unbind", way=Way.HUB_TO_GATE):
    """Asks node 0 to give up the master port."""


@dataclass(frozen=True)
class Release(Message, kind="release", way=Way.HUB_TO_GATE, limit=LONG):
    """The gate has passed. `notes`: remarks for the user."""

    agreed: RendezvousSettings
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Judged(Message, kind="verdict", way=Way.HUB_TO_GATE, limit=LONG):
    """The gate has failed, or, without verdicts, the job was stopped."""

    verdicts: list[Verdict]
    exit_code: int


# --- a node's supervisor and the hub


@dataclass(frozen=True)
class Join(Message, kind="join", way=Way.SUPERVISOR_TO_HUB):
    """A supervisor has connected. `at`: the node's clock, in seconds since the epoch."""

    node: int
    host: str
    pid: int
    at: float
    regroups: int = 0  # as in RendezvousSettings


@dataclass(frozen=True)
class Heartbeat(Message, kind="beat", way=Way.SUPERVISOR_TO_HUB, limit=LONG):
    beat: Beat


@dataclass(frozen=True)
class RendezvousCalled(Message, kind="rendezvous", way=Way.SUPERVISOR_TO_HUB, limit=LONG):
    """A rank has called init_process_group."""

    rank: RankEvidence


@dataclass(frozen=True)
class TorchrunStarted(Message, kind="torchrun", way=Way.SUPERVISOR_TO_HUB):
    """The launch command is, or has started, a torchrun."""

    torchrun: Torchrun


@dataclass(frozen=True)
class RankEnded(Message, kind="death", way=Way.SUPERVISOR_TO_HUB, limit=LONG):
    rank: RankEvidence


@dataclass(frozen=True)
class Evidence(Message, kind="evidence", way=Way.SUPERVISOR_TO_HUB, limit=LONG):
    """The answer to `Collect` number `id`; 0: unrequested."""

    id: int
    evidence: NodeEvidence


@dataclass(frozen=True)
class Stopping(Message, kind="stopping", way=Way.SUPERVISOR_TO_HUB):
    """The supervisor is being stopped. `why`: the signal."""

    why: str


@dataclass(frozen=True)
class Finished(Message, kind="finished", way=Way.SUPERVISOR_TO_HUB, limit=LONG):
    """The node is done. `verdicts`: why nothing was launched, which only the node knows."""

    exit_code: int
    verdicts: list[Verdict] = field(default_factory=list)
    checkpoint: str = ""  # a sentence on the last one, of a job that is ended from outside


@dataclass(frozen=True)
class Signalled(Message, kind="signalled", way=Way.SUPERVISOR_TO_HUB):
    """Answers `SignalRanks`: how many ranks of the node got the signal, and which have no handler."""

    sent: int
    deaf: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Alive(Message, kind="alive", way=Way.HUB_TO_SUPERVISOR):
    """Shows that the hub lives."""


@dataclass(frozen=True)
class Ping(Message, kind="ping", way=Way.HUB_TO_SUPERVISOR):
    """Makes the node's kernel acknowledge data, even if the supervisor hangs."""


@dataclass(frozen=True)
class Collect(Message, kind="collect", way=Way.HUB_TO_SUPERVISOR):
    """Asks for the evidence of all ranks within `deadline` seconds, as the answer `id`."""

    id: int
    why: str
    deadline: float
    dumps: int = 0  # bytes that flight recorders may take, packed


@dataclass(frozen=True)
class SignalRanks(Message, kind="signal-ranks", way=Way.HUB_TO_SUPERVISOR):
    """Asks for the plan's signal to each rank of the node. It gets it once, however often it is asked for."""


@dataclass(frozen=True)
class Noted(Message, kind="noted", way=Way.HUB_TO_SUPERVISOR):
    """The hub has noted that this node has finished."""


@dataclass(frozen=True)
class Notice(Message, kind="notice", way=Way.HUB_TO_SUPERVISOR, limit=LONG):
    """Something is wrong with a job that goes on. `why`: the reason of the evidence round."""

    verdicts: list[Verdict]
    why: str = ""


END_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL at the end of a job, also where no hub is left to say so."""


@dataclass(frozen=True)
class End(Message, kind="end", way=Way.HUB_TO_SUPERVISOR, limit=LONG):
    """The job ends; by REGROUP, only this attempt. `grace`: seconds between SIGTERM and SIGKILL."""

    exit_code: int
    verdicts: list[Verdict]
    grace: float


# --- a command, and the hub


@dataclass(frozen=True)
class AskStatus(Message, kind="status", way=Way.COMMAND_TO_HUB):
    """Answered by `StatusAnswer`."""


@dataclass(frozen=True)
class AskDiagnosis(Message, kind="diagnose", way=Way.COMMAND_TO_HUB):
    """Answered by `BundleAnswer`, with fresh evidence."""


@dataclass(frozen=True)
class Stop(Message, kind="stop", way=Way.COMMAND_TO_HUB):
    """Asks the hub to end the job."""

    why: str = ""


@dataclass(frozen=True)
class Ending(Message, kind="ending", way=Way.COMMAND_TO_HUB):
    """The sender is about to end the job. Answered by `BundleAnswer`."""

    why: str = ""


@dataclass(frozen=True)
class StatusAnswer(Message, kind="status", way=Way.HUB_TO_COMMAND, limit=LONG):
    status: JobStatus


@dataclass(frozen=True)
class BundleAnswer(Message, kind="bundle", way=Way.HUB_TO_COMMAND, limit=LONG):
    """`archive`: `bundle_file.as_text`. Older hubs sent `bundle`."""

    archive: str = ""
    bundle: Optional[Bundle] = None


# --- two gates


@dataclass(frozen=True)
class Payload(Message, kind="payload", way=Way.PEER_TO_PEER, limit=LONG):
    """Takes many packets of full size, which an MTU black hole drops."""

    data: str


@dataclass(frozen=True)
class Digest(Message, kind="digest", way=Way.PEER_TO_PEER):
    """Answers `Payload`."""

    digest: str
