"""What travels with a job: its plan, and the names that launcher and agent share.

This is the part of `contract` that is known before a job runs: spec, plan, render and inject need no more of
the agent. `codec` turns the dataclasses into JSON and back, `work_folder` tells what ranks wrote; they
alone do I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Optional

from ddplaunch.agent.plan.work_folder import SOURCE_MARK as SOURCE_MARK
from ddplaunch.agent.plan.work_folder import SOURCE_TIME as SOURCE_TIME

VERSION = 1
"""Raised when a message or a file of an older agent would be misread. Both sides refuse another version."""


class Occasion:
    """Occasions of a message to whom the job file's `notify` names."""

    NOTICE: Final = "notice"
    WITHDRAWN: Final = "withdrawn"  # the notice: the job is well again
    END: Final = "end"

    ALL: tuple[str, ...] = (NOTICE, WITHDRAWN, END)


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
    MACHINE = "DDPLAUNCH_MACHINE"  # the pod's machine, see `platforms.places`
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
    rdzv_id: Optional[str] = None  # torchrun's, of a joined job that no scheduler names


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
