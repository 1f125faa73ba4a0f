"""The data that launcher and agent exchange: names, numbers, and the shape of each file and message.

Standard library only, Python 3.9. Nothing here does I/O. Shapes are frozen dataclasses; `codec.dump` and
`codec.load` turn them into JSON and back. Unknown keys are ignored when read, so a newer agent can talk to an
older launcher of the same VERSION. Times named `at` are wall-clock seconds since the epoch on the node that
saw the event; times named `for_`, `seconds` or `age` are durations in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ddplaunch.agent.contract.evidence import Beat as Beat
from ddplaunch.agent.contract.evidence import Collective as Collective
from ddplaunch.agent.contract.evidence import Exited as Exited
from ddplaunch.agent.contract.evidence import Frame as Frame
from ddplaunch.agent.contract.evidence import Group as Group
from ddplaunch.agent.contract.evidence import JobEvidence as JobEvidence
from ddplaunch.agent.contract.evidence import Lost as Lost
from ddplaunch.agent.contract.evidence import MpiCall as MpiCall
from ddplaunch.agent.contract.evidence import NodeEvidence as NodeEvidence
from ddplaunch.agent.contract.evidence import Process as Process
from ddplaunch.agent.contract.evidence import Raised as Raised
from ddplaunch.agent.contract.evidence import RankBeat as RankBeat
from ddplaunch.agent.contract.evidence import RankEvidence as RankEvidence
from ddplaunch.agent.contract.evidence import Rendezvous as Rendezvous
from ddplaunch.agent.contract.evidence import Setting as Setting
from ddplaunch.agent.contract.evidence import Stack as Stack
from ddplaunch.agent.text.printable import printable

VERSION = 1
"""Raised when a message or a file of an older agent would be misread. Both sides refuse another version."""


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


class Env:
    """Environment variables that ddplaunch sets or reads. KEY never reaches the trainer."""

    NODE = "DDPLAUNCH_NODE"  # index of this node, 0-based
    ATTEMPT = "DDPLAUNCH_ATTEMPT"  # which submission of the job this is, 0-based
    KEY = "DDPLAUNCH_KEY"  # the job's shared secret, any non-empty string
    UID = "DDPLAUNCH_UID"  # of the Kubernetes Job: a public label, the key of a job that has no KEY
    HUB = "DDPLAUNCH_HUB"  # host:port of the hub, or several with commas, to be tried in order; see `places`
    NAMES = "DDPLAUNCH_NAMES"  # the nodes' names in node order, or their pattern, where the plan has none
    NAMESPACE = "DDPLAUNCH_NAMESPACE"  # of the pod, for the two above
    MACHINE = "DDPLAUNCH_MACHINE"  # that the pod is on, see `machines`
    TERMINATION = "DDPLAUNCH_TERMINATION"  # in a container: the file for its last words, see `termination`
    JOB = "DDPLAUNCH_JOB"  # the job's name, for the trainer's own use
    SOURCE = "DDPLAUNCH_SOURCE"  # folder where the job's source was unpacked
    HOOK = "DDPLAUNCH_HOOK"  # the supervisor's socket, for the worker hook


class Phase:
    """Phases of a node or a job, in order."""

    STARTING = "starting"  # the agent has not been heard of
    GATE = "gate"
    RENDEZVOUS = "rendezvous"  # the launch command runs, its workers do not yet
    INIT = "init_process_group"  # workers run, no process group yet
    FIRST = "first collective"  # process group made, nothing completed
    RUNNING = "running"
    FINALIZING = "finalizing"  # some ranks of the node have ended
    ENDED = "ended"

    ORDER = (STARTING, GATE, RENDEZVOUS, INIT, FIRST, RUNNING, FINALIZING, ENDED)


class Files:
    """File names below a job's folder. Rendered files lie in the folder itself, what happens in `run/`."""

    PLAN = "plan.json"
    AGENT = "agent.pyz"
    SOURCE = "source.tar"
    RUN = "run"
    KEY = "run/key"  # mode 0600
    HUB = "run/hub.json"  # {"host", "port", "pid"} once the hub listens
    HUB_ADDRESS = "run/hub.address"  # one line, as in Env.HUB: by name first, then by address
    HUB_LOG = "run/hub.log"
    GATES = "run/gate.log"  # all gates' output, where a scheduler brings it to the hub's machine
    STEP = "run/srun.log"  # likewise, of the ranks' step: its launcher's word, and nodes without a supervisor
    STATUS = "run/status.json"  # JobStatus, replaced whole at every change
    EVENTS = "run/events.jsonl"  # one Event a line
    FAULTY = "run/faulty"  # names of the nodes at fault, one a line, where the job may work without them
    BUNDLE = "run/bundle.json"  # Bundle, written at every verdict and at the end
    OUTPUT = "run/output.log"  # every node's prefixed output, as a terminal would show it
    NODE = "run/node-{node}"
    # below NODE:
    AGREED = "agreed.json"  # Agreed, written by the gate, read by the supervisor
    GATE_LOG = "gate.log"
    LAUNCH_LOG = "launch.log"  # what torchrun itself said
    RANKS = "ranks"  # per-rank logs
    OWN = "bundle.json"  # Bundle, of this node's view alone, where it ended without a hub


class Status:
    """Results of a check. UNKNOWN never fails a job by itself."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


MESH = "mesh"
"""The check that nodes make together, each of the way to the others."""

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
    "cpu",
    "disk",
    "clock",
)
"""The gate's checks in the order in which they are printed, by the names that `gate.skip` takes.

All but MESH are modules of `agent.checks`."""


# --- what every node is told


@dataclass(frozen=True)
class GatePlan:
    enabled: bool = True
    timeout: float = 120.0  # seconds of wall clock for the whole gate
    port: Optional[int] = None  # hub's port; None: chosen where it runs; 0: derived from the key by all nodes
    interface: Optional[str] = None
    skip: list[str] = field(default_factory=list)  # names of checks
    smoke_test: Optional[bool] = None  # a real collective of all ranks, after the mesh; None: no
    joined: bool = False  # `run --join`: the user starts each node, and may have given them different keys


@dataclass(frozen=True)
class WatchdogPlan:
    notice_after: float = 10.0  # seconds without any progress
    kill_after: Optional[float] = 600.0  # None: never
    privileges: str = "none"  # "ptrace": the worker hook lets a sampler of the same user read its stacks


@dataclass(frozen=True)
class ResourcePlan:
    """Resources that the job file asks for on every node; None: it says nothing."""

    gpus: Optional[int] = None
    cpus: Optional[float] = None
    memory: Optional[int] = None  # bytes
    shm: Optional[int] = None  # bytes
    rdma: Optional[int] = None  # devices


@dataclass(frozen=True)
class JobPlan:
    """The same file on all nodes of a job; only Env differs between them.

    `launch` may hold {python} {node} {is_host} {master_addr} {master_port} {run_id}, replaced
    inside each word ({is_host}: 1 on node 0, else 0), and {keeper}, which stands for the words that start
    one rank under a keeper (supervise.keeper). `command` is the user's and is passed on untouched,
    behind `launch`; where `launch` is empty, it is the user's own whole command line (`ddplaunch run -- …`).
    """

    job: str
    nodes: int
    nproc_per_node: Optional[int]  # None: only the launch command knows (`ddplaunch run -- …`)
    launch: list[str]
    command: list[str]
    python: str = "python3"
    names: list[str] = field(default_factory=list)  # name or address of each node; empty: learnt at check-in
    master_addr: Optional[str] = None  # None: node 0's address as learnt by the gate
    master_port: Optional[int] = None  # None: chosen at run time outside the ephemeral range
    mpi: bool = False  # `launch` runs on node 0 alone, and starts the ranks of all nodes through {keeper}
    max_restarts: int = 0
    retries: int = 0  # whole-job attempts after a node's fault, where no scheduler counts them
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)  # NAME -> {"env": NAME} | {"file": PATH}
    workdir: Optional[str] = None  # None: the unpacked source, else the folder the agent was started in
    platform: str = ""  # the scheduler that runs the job, of `agent.platforms`; another one counts as none
    gate: GatePlan = field(default_factory=GatePlan)
    watchdog: WatchdogPlan = field(default_factory=WatchdogPlan)
    resources: ResourcePlan = field(default_factory=ResourcePlan)
    version: int = VERSION


@dataclass(frozen=True)
class RendezvousSettings:
    """Settings that the gate agreed on: the environment that supervisors give to their trainers, and why."""

    master_addr: str
    master_port: int
    env: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)  # variable -> one sentence


# --- gate


@dataclass(frozen=True)
class CheckResult:
    check: str  # name as in `gate.skip`
    status: str  # Status
    observed: str
    wanted: str = ""
    hint: str = ""
    code: str = ""  # verdict code, when FAIL
    facts: dict[str, Any] = field(default_factory=dict)
    patience: Optional[float] = None  # of a FAIL that may pass: seconds to wait for that alone


@dataclass(frozen=True)
class CheckIn:
    """A node's first words to the hub: who it is, what it found at home, where peers reach it."""

    node: int
    host: str  # "n3", of a pod "digits-2 on worker2"
    nodes: int  # how many nodes this one was told of
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
    outcome: str  # ok | refused | timeout | unreachable | reset | stranger | shared | stalled | lossy
    detail: str = ""  # what a stranger, or another job, said, errno's name; of "ok": that some tries failed
    seconds: float = 0.0


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
    error: str = ""  # what it raised, or how it ended; empty and not done: it stood still
    kind: str = ""  # of the error: "timeout" | "refused" | "unreachable" (the store), "sum"
    waits: list[str] = field(default_factory=list)  # addresses that answer it nothing
    listens: list[str] = field(default_factory=list)  # where its peers shall reach it
    log: list[str] = field(default_factory=list)  # the end of NCCL's own


# --- verdicts


@dataclass(frozen=True)
class Verdict:
    """A cause, who is at fault, and the facts. The text is printable, although it may quote a rank."""

    code: str
    sentence: str
    where: str  # "spec" | "gate" | "launch" | "run"
    nodes: list[int] = field(default_factory=list)  # culprits
    ranks: list[int] = field(default_factory=list)  # culprits, global ranks
    victims: list[int] = field(default_factory=list)  # global ranks that only wait or died of another's fault
    confidence: float = 1.0
    facts: list[str] = field(default_factory=list)  # what it rests on, one sentence each
    hint: str = ""

    def __post_init__(self) -> None:
        for name in ("code", "sentence", "hint"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        object.__setattr__(self, "facts", list(map(printable, self.facts)))


# --- what can be read from outside


@dataclass(frozen=True)
class NodeStatus:
    node: int
    host: str = ""
    phase: str = Phase.STARTING
    since: float = 0.0
    detail: str = ""  # "waits for ranks 2, 5", "3 of 4 ranks in all_reduce"
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class JobStatus:
    job: str
    attempt: int
    phase: str
    since: float
    nodes: list[NodeStatus]
    started: float
    updated: float
    waiting_for: list[int] = field(default_factory=list)  # nodes
    verdicts: list[Verdict] = field(default_factory=list)
    exit_code: Optional[int] = None  # Exit, once the job has ended
    decided: Optional[int] = None  # Exit by which the hub has decided to end the job
    gate_passed: bool = False  # the nodes may start their ranks: whatever ends the job now ends a training
    version: int = VERSION


@dataclass(frozen=True)
class Event:
    at: float
    kind: str  # phase, check-in, waiting, mesh, smoke, release, verdict, notice, death, evidence, end
    text: str  # one sentence for people
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
    mesh: list[MeshResult] = field(default_factory=list)  # what failed, or passed with a remark
    passed: dict[str, dict[str, int]] = field(default_factory=dict)  # the other paths, see `paths`
    agreed: Optional[RendezvousSettings] = None
    evidence: Optional[JobEvidence] = None  # what the verdicts rest on
    verdicts: list[Verdict] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    exit_code: Optional[int] = None
    version: int = VERSION
