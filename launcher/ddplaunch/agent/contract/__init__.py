"""The data that launcher and agent exchange: names, numbers, and the shape of each file and message.

Standard library only, Python 3.9. Only `codec` and
`bundle_file` do I/O. Shapes are frozen dataclasses; `codec.dump` and
`codec.load` turn them into JSON and back. Unknown keys are ignored when read, so a newer agent can talk to an
older launcher of the same VERSION. Times named `at` are wall-clock seconds since the epoch on the node that
saw the event; `for_`, `seconds` and `age` are durations in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ddplaunch.agent.contract.evidence import CallSequence as CallSequence
from ddplaunch.agent.contract.evidence import CallSite as CallSite
from ddplaunch.agent.contract.evidence import Collective as Collective
from ddplaunch.agent.contract.evidence import Dump as Dump
from ddplaunch.agent.contract.evidence import Exited as Exited
from ddplaunch.agent.contract.evidence import Frame as Frame
from ddplaunch.agent.contract.evidence import Group as Group
from ddplaunch.agent.contract.evidence import JobEvidence as JobEvidence
from ddplaunch.agent.contract.evidence import JobPace as JobPace
from ddplaunch.agent.contract.evidence import LastActs as LastActs
from ddplaunch.agent.contract.evidence import Lost as Lost
from ddplaunch.agent.contract.evidence import MpiCall as MpiCall
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
from ddplaunch.agent.contract.evidence import Stack as Stack
from ddplaunch.agent.contract.evidence import Stand as Stand
from ddplaunch.agent.contract.evidence import Wait as Wait
from ddplaunch.agent.contract.evidence import Xid as Xid
from ddplaunch.agent.contract.status import Beat as Beat
from ddplaunch.agent.contract.status import JobStatus as JobStatus
from ddplaunch.agent.contract.status import LaunchAttempt as LaunchAttempt
from ddplaunch.agent.contract.status import NodeStatus as NodeStatus
from ddplaunch.agent.contract.status import NodeWait as NodeWait
from ddplaunch.agent.contract.status import RankBeat as RankBeat
from ddplaunch.agent.contract.verdict import AnyFact as AnyFact
from ddplaunch.agent.contract.verdict import Fact as Fact
from ddplaunch.agent.contract.verdict import Source as Source
from ddplaunch.agent.contract.verdict import Verdict as Verdict
from ddplaunch.agent.contract.words import VERSION as VERSION
from ddplaunch.agent.contract.words import Marks as Marks
from ddplaunch.agent.contract.words import Occasion as Occasion
from ddplaunch.agent.contract.words import Outcome as Outcome
from ddplaunch.agent.contract.words import Phase as Phase
from ddplaunch.agent.contract.words import PhaseName as PhaseName
from ddplaunch.agent.contract.words import Posture as Posture
from ddplaunch.agent.contract.words import Standing as Standing
from ddplaunch.agent.contract.words import Status as Status
from ddplaunch.agent.contract.words import StatusName as StatusName
from ddplaunch.agent.contract.words import Where as Where


class Exit:
    """Exit codes of the agent. Kubernetes podFailurePolicy and Slurm requeue read them."""

    OK = 0
    NODE_AT_FAULT = 20  # gate: may work elsewhere
    MISCONFIGURED = 30  # gate: do not retry
    WORKER_FAILED = 40
    OUT_OF_MEMORY = 41
    HANG = 50
    STOPPED = 60
    UNUSABLE = 79  # this Python is too old, or the agent cannot work here


GATE_LEAVES = 61
"""Exit code of a gate that is stopped in a pod of an elastic job, but for node 0's: it gets another pod."""
REGROUP = 62
"""Exit code of an attempt after which all nodes go back to the gate, to begin the next one with newcomers."""
OUTPUT_LOST = 63
"""Exit code of a command in the foreground that ended well, but lost output on a full disk."""


class Env:
    """Environment variables that ddplaunch sets or reads. KEY never reaches the trainer."""

    PREFIX = "DDPLAUNCH_"  # of all names below
    NODE = "DDPLAUNCH_NODE"  # index of this node, 0-based
    ATTEMPT = "DDPLAUNCH_ATTEMPT"  # 0 for the first run of the job, and one more at each retry
    RESUME_DIR = (
        "DDPLAUNCH_RESUME_DIR"  # folder for checkpoints, the same in all attempts; not on all targets
    )
    KEY = "DDPLAUNCH_KEY"  # the job's shared secret, any non-empty string
    UID = "DDPLAUNCH_UID"  # of the Kubernetes Job: a public label, the key of a job that has no KEY
    HUB = "DDPLAUNCH_HUB"  # host:port of the hub, or several with commas, to be tried in order; see `places`
    NAMES = "DDPLAUNCH_NAMES"  # the nodes' names in node order, or their pattern, where the plan has none
    NAMESPACE = "DDPLAUNCH_NAMESPACE"  # of the pod, for the two above
    MACHINE = "DDPLAUNCH_MACHINE"  # the pod's machine, see `physical_host`
    TERMINATION = "DDPLAUNCH_TERMINATION"  # in a container: the file for its message, see `termination`
    JOB = "DDPLAUNCH_JOB"  # the job's name, for the trainer's own use
    SOURCE = "DDPLAUNCH_SOURCE"  # folder where the job's source was unpacked
    ENDS_AT = "DDPLAUNCH_ENDS_AT"  # time.time() at which a local job's time limit ends the attempt
    SHARED = "DDPLAUNCH_SHARED"  # a file in `run` of node 0's job folder, which a node sees if it shares that
    SUBMISSION = "DDPLAUNCH_SUBMISSION"  # with JobPlan.outputs: what no other submission has, in all attempts
    WEBHOOK = "DDPLAUNCH_WEBHOOK_"  # and a number: in a pod, a URL of the job file's `notify`
    PY_SPY = "DDPLAUNCH_PY_SPY"  # path of a py-spy that the launcher has brought
    HOOK = "DDPLAUNCH_HOOK"  # the supervisor's socket, for the worker hook


class Files:
    """File names below a job's folder. Rendered files are in the folder itself, output in `run/`."""

    PLAN = "plan.json"
    JOB = "job.json"  # the job file itself, in place of PLAN, where a Helm chart has made the pods
    AGENT = "agent.pyz"
    SOURCE = "source.tar"
    WORK = "work"  # where SOURCE is unpacked, and ranks stand without a workdir
    RUN = "run"
    RESUME = "resume"  # Env.RESUME_DIR, where the job file names no other
    KEY = "run/key"  # mode 0600
    HUB = "run/hub.json"  # {"host", "port", "pid"} once the hub listens
    HUB_ADDRESS = "run/hub.address"  # one line, as in Env.HUB: by name first, then by address
    HUB_LOG = "run/hub.log"
    GATES = "run/gate.log"  # all gates' output, where the scheduler writes it on the hub's machine
    STEP = (
        "run/srun.log"  # output of the ranks' step in the same way: srun's messages, nodes without supervisor
    )
    STATUS = "run/status.json"  # JobStatus, replaced whole at every change
    EVENTS = "run/events.jsonl"  # one Event a line
    SIGNALLED = "run/signalled"  # in words, why the ranks got the plan's signal, once they have
    FAULTY = "run/faulty"  # names of the nodes at fault, one a line, where the job may work without them
    BUNDLE = "run/bundle.zip"  # Bundle, by `bundle_file`, written at every verdict and at the end
    STOP_REQUEST = "stop-request.json"  # StopRequest: who asks for the end, where the folder is shared
    OUTPUT = "run/output.log"  # every node's prefixed output, as a terminal would show it
    NODE = "run/node-{node}"
    # below NODE:
    AGREED = "agreed.json"  # RendezvousSettings, written by the gate, read by the supervisor
    GATE_LOG = "gate.log"
    LAUNCH_LOG = "launch.log"  # output of torchrun itself
    RANKS = "ranks"  # per-rank logs
    LAUNCH_END = "launch.json"  # LaunchEnd, once the launch command has ended
    OWN = "bundle.zip"  # Bundle, by `bundle_file`, of this node's view alone, where it ended without a hub


SOURCE_TIME = 315_619_200
"""Seconds since the epoch (2 January 1980) at which all files of a job's source seem to be written, so that
the same source makes the same archive. Zip knows no earlier year."""
SOURCE_MARK = ".ddplaunch-source"
"""Name of a file in Files.WORK, written when the source is unpacked: see `contract.work_folder`."""

MESH = "mesh"
"""The check that nodes make together: each tries paths to the others."""

CHECKS = (
    "configuration",
    "names",
    "service",
    "port",
    MESH,
    "interpreter",
    "versions",
    "interfaces",
    "gpus",
    "backend",
    "rdma",
    "memlock",
    "shm",
    "memory",
    "threads",
    "cpu",
    "disk",
    "clock",
)
"""The gate's checks in the order in which they are printed, by the names that `gate.skip` takes.

All but MESH are in the table of `agent.checks.run`."""


# --- plan


@dataclass(frozen=True)
class GatePlan:
    enabled: bool = True
    timeout: float = 120.0  # seconds of wall clock for the whole gate
    port: Optional[int] = None  # hub's port; None: chosen where it runs; 0: derived from the key by all nodes
    interface: Optional[str] = None
    skip: list[str] = field(default_factory=list)  # names of checks
    smoke_test: Optional[bool] = None  # a real collective of all ranks, after the mesh; None: no
    joined: bool = False  # `run --join`: the user starts each node, and may have given them different keys


KILL_AFTER = 600.0
"""Seconds of `kill_after` where it is not set, at least: NCCL's own timeout."""


@dataclass(frozen=True)
class WatchdogPlan:
    notice_after: float = 10.0  # seconds without any progress
    kill_after: Optional[float] = KILL_AFTER  # None: never
    patient: Optional[bool] = None  # kill_after is not set: it is never before torch's own timeouts
    privileges: str = "none"  # "ptrace": the worker hook lets a sampler of the same user read its stacks


@dataclass(frozen=True)
class ResourcePlan:
    """Resources that the job file asks for on every node; None: not in it."""

    gpus: Optional[int] = None
    cpus: Optional[float] = None
    memory: Optional[int] = None  # bytes
    shm: Optional[int] = None  # bytes
    rdma: Optional[int] = None  # devices


@dataclass(frozen=True)
class NotifyPlan:
    """One recipient of messages about the job: `webhook`, `command` or `events`, the others are None."""

    when: list[str] = field(default_factory=lambda: list(Occasion.ALL))
    webhook: Optional[dict[str, str]] = None  # of its URL: {"env": NAME} | {"file": PATH}
    command: Optional[list[str]] = None
    format: str = "json"  # or "slack"
    events: Optional[bool] = None  # where the scheduler shows its jobs, see `Platform.show`


@dataclass(frozen=True)
class MetricsPlan:
    port: int
    address: Optional[str] = None  # None: all addresses in a pod, and loopback elsewhere


@dataclass(frozen=True)
class SignalPlan:
    """A signal for each rank, before the scheduler ends the job."""

    name: str  # "SIGUSR1"
    before: float  # seconds from it to the end


@dataclass(frozen=True)
class JobPlan:
    """The same file on all nodes of a job; only Env differs between them.

    `launch` may hold {python} {node} {nnodes} {is_host} {master_addr} {master_port} {run_id}, replaced
    inside each word ({nnodes}: how many start; {is_host}: 1 on node 0, else 0), and {keeper}, which stands
    for the words that start one rank under a keeper (supervisor.mpi_keeper). `command` is the user's and is
    passed on untouched, behind `launch`; where `launch` is empty, it is the user's own whole command line
    (`ddplaunch run -- …`).
    """

    job: str
    nodes: int
    nproc_per_node: Optional[int]  # None: only the user's own command line knows
    launch: list[str]
    command: list[str]
    python: str = "python3"
    names: list[str] = field(default_factory=list)  # name or address of each node; empty: learnt at check-in
    master_addr: Optional[str] = None  # None: node 0's address as learnt by the gate
    master_port: Optional[int] = None  # None: chosen at run time outside the ephemeral range
    mpi: bool = False  # the ranks speak MPI, so that torch's own libraries count for nothing
    keepers: Optional[bool] = None  # `launch` runs on node 0 alone, and starts all ranks through {keeper}
    min_nodes: Optional[int] = None  # the job starts with so many of its nodes, node 0 among them; None: all
    newcomers: Optional[bool] = None  # nodes that come while it runs are let in; None: they are turned away
    retries: int = 0  # attempts after the first
    retry_hangs: Optional[bool] = None  # None: no; only faults of nodes and of the network are retried
    resume_args: Optional[list[str]] = None  # appended to `command` in every attempt but the first
    resume_dir: Optional[str] = None  # Env.RESUME_DIR; None: the job's own folder, where it has one
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)  # NAME -> {"env": NAME} | {"file": PATH}
    workdir: Optional[str] = None  # None: the unpacked source, else the folder the agent was started in
    outputs: Optional[str] = None  # folder on a volume in which the ranks get one of the job's own; None: no
    platform: str = ""  # the scheduler that runs the job, of `agent.platforms`; another one counts as none
    gate: GatePlan = field(default_factory=GatePlan)
    watchdog: WatchdogPlan = field(default_factory=WatchdogPlan)
    resources: ResourcePlan = field(default_factory=ResourcePlan)
    signal: Optional[SignalPlan] = None
    time_limit: Optional[float] = None  # seconds of each attempt, where no scheduler counts them
    notify: Optional[list[NotifyPlan]] = None
    metrics: Optional[MetricsPlan] = None
    keep_background: Optional[bool] = None  # what the launch command leaves running goes on after its end
    version: int = VERSION

    @property
    def hidden(self) -> dict[str, dict[str, str]]:
        """Return where to find each value that no output may show, by the name that stands in its place."""
        webhooks = {f"webhook {n}": each.webhook for n, each in enumerate(self.notify or []) if each.webhook}
        return {**self.secrets, **webhooks}

    @property
    def retried(self) -> list[int]:
        """Return the exit codes of an attempt after which another one may go well."""
        return [Exit.NODE_AT_FAULT, Exit.HANG] if self.retry_hangs else [Exit.NODE_AT_FAULT]

    @property
    def retried_after_signal(self) -> list[int]:
        """Return the same for an attempt whose ranks got the signal, which may end them by any code."""
        return [Exit.OK, Exit.WORKER_FAILED, Exit.STOPPED, *self.retried]


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
    address: str  # the address peers shall connect to
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
