"""The data that launcher and agent exchange: the shape of each file and message.

What is known before a job runs, names and the plan, is in `agent.plan`. Standard library only, Python 3.9.
Only `plan.codec` and `bundle_file` do I/O. Shapes are frozen dataclasses; `codec.dump` and `codec.load` turn
them into JSON and back. Unknown keys are ignored when read, so a newer agent can talk to an older launcher of
the same VERSION. Times named `at` are wall-clock seconds since the epoch on the node that saw the event;
`for_`, `seconds` and `age` are durations in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ddplaunch.agent.contract.evidence import TERMINAL as TERMINAL
from ddplaunch.agent.contract.evidence import Assignment as Assignment
from ddplaunch.agent.contract.evidence import Branch as Branch
from ddplaunch.agent.contract.evidence import CallSequence as CallSequence
from ddplaunch.agent.contract.evidence import CallSite as CallSite
from ddplaunch.agent.contract.evidence import Collective as Collective
from ddplaunch.agent.contract.evidence import Dump as Dump
from ddplaunch.agent.contract.evidence import Exited as Exited
from ddplaunch.agent.contract.evidence import Frame as Frame
from ddplaunch.agent.contract.evidence import Function as Function
from ddplaunch.agent.contract.evidence import Group as Group
from ddplaunch.agent.contract.evidence import Handler as Handler
from ddplaunch.agent.contract.evidence import JobEvidence as JobEvidence
from ddplaunch.agent.contract.evidence import JobPace as JobPace
from ddplaunch.agent.contract.evidence import LastActs as LastActs
from ddplaunch.agent.contract.evidence import Lost as Lost
from ddplaunch.agent.contract.evidence import MpiCall as MpiCall
from ddplaunch.agent.contract.evidence import Mutex as Mutex
from ddplaunch.agent.contract.evidence import NodeEvidence as NodeEvidence
from ddplaunch.agent.contract.evidence import Process as Process
from ddplaunch.agent.contract.evidence import Raised as Raised
from ddplaunch.agent.contract.evidence import RankEvidence as RankEvidence
from ddplaunch.agent.contract.evidence import RankPace as RankPace
from ddplaunch.agent.contract.evidence import Ras as Ras
from ddplaunch.agent.contract.evidence import RasCommunicator as RasCommunicator
from ddplaunch.agent.contract.evidence import RasCount as RasCount
from ddplaunch.agent.contract.evidence import RasRank as RasRank
from ddplaunch.agent.contract.evidence import Rendezvous as Rendezvous
from ddplaunch.agent.contract.evidence import Setting as Setting
from ddplaunch.agent.contract.evidence import Signalled as Signalled
from ddplaunch.agent.contract.evidence import Stack as Stack
from ddplaunch.agent.contract.evidence import Stand as Stand
from ddplaunch.agent.contract.evidence import Tie as Tie
from ddplaunch.agent.contract.evidence import Torchrun as Torchrun
from ddplaunch.agent.contract.evidence import Wait as Wait
from ddplaunch.agent.contract.evidence import Xid as Xid
from ddplaunch.agent.contract.verdict import AnyFact as AnyFact
from ddplaunch.agent.contract.verdict import Fact as Fact
from ddplaunch.agent.contract.verdict import Source as Source
from ddplaunch.agent.contract.verdict import Verdict as Verdict
from ddplaunch.agent.contract.words import Marks as Marks
from ddplaunch.agent.contract.words import Outcome as Outcome
from ddplaunch.agent.contract.words import Phase as Phase
from ddplaunch.agent.contract.words import PhaseName as PhaseName
from ddplaunch.agent.contract.words import Posture as Posture
from ddplaunch.agent.contract.words import Standing as Standing
from ddplaunch.agent.contract.words import StandingName as StandingName
from ddplaunch.agent.contract.words import Status as Status
from ddplaunch.agent.contract.words import StatusName as StatusName
from ddplaunch.agent.contract.words import Where as Where
from ddplaunch.agent.plan import CHECKS as CHECKS
from ddplaunch.agent.plan import GATE_LEAVES as GATE_LEAVES
from ddplaunch.agent.plan import KILL_AFTER as KILL_AFTER
from ddplaunch.agent.plan import MESH as MESH
from ddplaunch.agent.plan import OUTPUT_LOST as OUTPUT_LOST
from ddplaunch.agent.plan import REGROUP as REGROUP
from ddplaunch.agent.plan import SOURCE_MARK as SOURCE_MARK
from ddplaunch.agent.plan import SOURCE_TIME as SOURCE_TIME
from ddplaunch.agent.plan import VERSION as VERSION
from ddplaunch.agent.plan import Env as Env
from ddplaunch.agent.plan import Exit as Exit
from ddplaunch.agent.plan import Files as Files
from ddplaunch.agent.plan import GatePlan as GatePlan
from ddplaunch.agent.plan import JobPlan as JobPlan
from ddplaunch.agent.plan import MetricsPlan as MetricsPlan
from ddplaunch.agent.plan import NotifyPlan as NotifyPlan
from ddplaunch.agent.plan import Occasion as Occasion
from ddplaunch.agent.plan import ResourcePlan as ResourcePlan
from ddplaunch.agent.plan import SignalPlan as SignalPlan
from ddplaunch.agent.plan import WatchdogPlan as WatchdogPlan
from ddplaunch.agent.plan import codec as codec


@dataclass(frozen=True)
class StopRequest:
    """The last signal to a local job, and who has sent it, where that is known."""

    number: int  # of the signal
    who: str  # for people: "Ctrl-C"
    to_group: bool = False  # as a terminal sends it: to all processes of the foreground group
    final: bool = False  # by `ddplaunch cancel`: the job has to end, with or without the command's consent


@dataclass(frozen=True)
class LaunchEnd:
    """The end of a node's launch command. One of `code` and `signal` is set."""

    code: Optional[int]
    signal: Optional[int]
    killed: bool = False  # by ddplaunch, since it did not end by itself
    dismissed: bool = False  # ddplaunch has ended it: it hung, or another node has failed or was stopped


@dataclass(frozen=True)
class RendezvousSettings:
    """Settings by the gate: the environment that supervisors give to their trainers, and why."""

    master_addr: str
    master_port: int
    env: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)  # variable -> one sentence
    nodes: Optional[int] = None  # how many of an elastic job start; None: all
    regroups: Optional[int] = None  # how often newcomers were let in before; the attempt is later by so many


# --- gate


@dataclass(frozen=True)
class CheckResult:
    check: str  # name as in `gate.skip`
    status: StatusName
    observed: str
    wanted: str = ""
    hint: str = ""
    code: str = ""  # verdict code, when FAIL
    facts: dict[str, Any] = field(default_factory=dict)
    patience: Optional[float] = None  # of a FAIL that may pass: seconds to wait for that alone


@dataclass(frozen=True)
class CheckIn:
    """A node's check-in with the hub: its identity, the results of its checks, where peers reach it."""

    node: int
    host: str  # "n3", of a pod "digits-2 on worker2"
    nodes: int  # number of nodes in this node's plan
    nproc_per_node: Optional[int]
    address: str  # the address peers connect to
    ports: dict[str, int]  # "responder" and, on node 0, "master"
    at: float
    machine: str = ""  # boot id, to tell machines apart
    netns: str = ""  # network namespace, to tell whether loopback is shared
    pid: int = 0
    facts: dict[str, Any] = field(default_factory=dict)  # check name -> facts
    checks: list[CheckResult] = field(default_factory=list)


@dataclass(frozen=True)
class MeshTask:
    peer: int
    address: str
    port: int
    what: str  # "responder" | "master" | "library" | "store"
    after: float = 0.0  # seconds from now on, so that not all come to one node at once


@dataclass(frozen=True)
class MeshResult:
    node: int
    peer: int
    address: str
    port: int
    what: str
    outcome: Outcome
    detail: str = ""  # a stranger's greeting, errno's name; of "ok": that some tries failed
    seconds: float = 0.0
    rtt: Optional[int] = None  # microseconds of the shortest round trip; None: no connection, or not seen
    mtu: Optional[int] = None  # bytes of the path's MTU, as the kernel took it


@dataclass(frozen=True)
class SmokeRank:
    """Progress of one rank in the collective smoke test. `stage` is the last that it has finished."""

    node: int
    rank: int
    backend: str  # "gloo" | "nccl"
    stage: str  # "started" | "imported" | "store" (reached) | "group" (made) | "done"
    size: int = 0  # bytes of the largest all_reduce whose result was right
    seconds: float = 0.0  # of all of them
    rate: float = 0.0  # bytes a second of the largest
    error: str = ""  # its exception, or how it ended; empty and not done: it made no progress
    kind: str = ""  # of the error: "timeout" | "refused" | "unreachable" (the store), "sum"
    waits: list[str] = field(default_factory=list)  # addresses that do not answer it
    listens: list[str] = field(default_factory=list)  # its own, for its peers
    log: list[str] = field(default_factory=list)  # the end of NCCL's log


# --- status and bundle, for other programs


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


@dataclass(frozen=True)
class Event:
    at: float
    kind: str  # phase, check-in, waiting, mesh, smoke, verdict, notice, lost, death, ending, checkpoint, end
    text: str  # one sentence for the user
    node: Optional[int] = None
    rank: Optional[int] = None


@dataclass(frozen=True)
class Bundle:
    """Evidence of a whole job in one file, which `diagnose` and the report read."""

    job: str
    attempt: int
    nodes: int
    nproc_per_node: Optional[int]
    started: float
    written: float
    check_ins: list[CheckIn] = field(default_factory=list)
    mesh: list[MeshResult] = field(default_factory=list)  # paths that failed, or passed with a remark
    passed: dict[str, dict[str, int]] = field(default_factory=dict)  # the other paths, see `paths`
    links: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # theirs, in the same form
    agreed: Optional[RendezvousSettings] = None
    evidence: Optional[JobEvidence] = None  # the basis of the verdicts
    verdicts: list[Verdict] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    exit_code: Optional[int] = None
    failed_attempts: list[LaunchAttempt] = field(
        default_factory=list
    )  # earlier attempts within the launch command
    version: int = VERSION
