"""What supervisors report of their ranks, and the status of the job that the hub makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from ddplaunch.agent.contract.evidence import Exited, JobEvidence, JobPace, RankPace
from ddplaunch.agent.contract.verdict import Verdict
from ddplaunch.agent.contract.words import VERSION, Phase, PhaseName, StandingName


@dataclass(frozen=True)
class RankBeat:
    rank: int
    local_rank: int
    pid: int
    alive: bool
    phase: PhaseName
    stuck_for: float  # seconds since it last did something
    still_for: float  # seconds since it last did something or computed
    waits: bool = False  # its main thread is in a collective or in the rendezvous
    makes_communicator: bool = False  # NCCL's first, in its first collective
    completed: int = 0  # collectives completed, all groups
    exit: Optional[Exited] = None
    timeout: Optional[float] = None  # seconds for which torch lets it wait; None: it has no group


@dataclass(frozen=True)
class Beat:
    """The heartbeat that every supervisor sends about once a second."""

    node: int
    phase: PhaseName
    at: float
    ranks: list[RankBeat] = field(default_factory=list)
    paces: list[RankPace] = field(default_factory=list)  # of living ranks; in one beat of ten or so
    attempt: int = 0  # how often the launch command has started ranks in the place of others
    least_nodes: Optional[int] = None  # with how few nodes torchrun goes on; None: it needs all of them


@dataclass(frozen=True)
class NodeWait:
    """Ranks of one node that wait in a collective or in the rendezvous for others."""

    since: float  # when the last of them began to, by the hub's clock
    ranks: list[int]
    others: list[int] = field(default_factory=list)  # living ranks of the node that do not wait


@dataclass(frozen=True)
class NodeStatus:
    node: int
    host: str = ""
    phase: PhaseName = Phase.STARTING
    since: float = 0.0
    detail: str = ""  # "does not answer"; of older agents also which ranks wait, in words
    exit_code: Optional[int] = None
    waits: Optional[NodeWait] = None  # None: no rank waits, or not for long
    standing: Optional[StandingName] = None  # None: one of the job's


@dataclass(frozen=True)
class LaunchAttempt:
    """An attempt within a launch command that went on after ranks had failed: torchrun starts them again, a
    script starts another torchrun, a program handles the exception of its mp.spawn.
    """

    number: int  # of these attempts, from 0 on, also those without a failure
    ended: float  # when other ranks came, or the launch command ended, by the hub's clock
    verdicts: list[Verdict] = field(default_factory=list)
    evidence: Optional[JobEvidence] = None


@dataclass(frozen=True)
class JobStatus:
    job: str
    attempt: int
    phase: PhaseName
    since: float
    nodes: list[NodeStatus]
    started: float
    updated: float
    waiting_for: list[int] = field(default_factory=list)  # nodes
    verdicts: list[Verdict] = field(default_factory=list)
    exit_code: Optional[int] = None  # Exit, once the job has ended
    decided: Optional[int] = None  # Exit by which the hub has decided to end the job
    why: str = ""  # it has decided so: as in the JobEvidence that was judged; "": without any, or not yet
    gate_passed: bool = False  # the nodes may start their ranks: an end of the job now ends a training
    pace: Optional[JobPace] = None  # while it runs, and where it is known
    launch_attempt: int = 0  # how often the launch command has started ranks in the place of others
    failed_attempts: list[LaunchAttempt] = field(
        default_factory=list
    )  # earlier ones with failures, without evidence
    output_lost: str = ""  # of a command in the foreground: what could not be written, and why
    signal: Optional[str] = None  # a sentence: which ranks got the signal of the job file, and why
    version: int = VERSION
