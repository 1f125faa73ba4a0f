"""The shape of evidence: what is known about a running job's ranks at one moment.

Import them from `contract`, as all that crosses a process border; they stand here because they are many.
Times named `at` are wall-clock seconds since the epoch on the node that saw the event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Frame:
    name: str
    file: str
    line: int


@dataclass(frozen=True)
class Stack:
    thread: str
    main: bool
    frames: list[Frame]  # innermost first


@dataclass(frozen=True)
class Raised:
    """An exception: uncaught (`handled` False), or seen in a log or an except block (`handled` True)."""

    type: str
    message: str
    at: float
    frames: list[Frame] = field(default_factory=list)  # innermost first
    handled: bool = False
    source: str = ""  # "hook" | "log" | "torchrun"


@dataclass(frozen=True)
class Exited:
    at: float
    code: Optional[int] = None
    signal: Optional[int] = None  # both None: it is gone and nobody saw how
    by_us: bool = False  # sent by the supervisor or by torchrun after another rank's end


@dataclass(frozen=True)
class Collective:
    """One call of torch.distributed: an entry of torch's flight recorder, or of the hook's ring."""

    group: str  # process group name; "0" is the default group
    seq: int  # collective_seq_id, or p2p_seq_id when p2p; of the ring: its number among the group's calls
    op: str  # "all_reduce", "broadcast", "send", …
    sizes: list[list[int]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    done: bool = False
    p2p: bool = False
    at: float = 0.0
    frames: list[Frame] = field(default_factory=list)  # where it was called, innermost first
    peer: Optional[int] = None  # of a point-to-point operation: the other side's global rank; -1: any
    state: str = ""  # torch's "scheduled" | "started" | "completed", or the ring's "entered" | "returned" |
    # "issued" (it returned, and completes later) | "raised"; "": not known


@dataclass(frozen=True)
class Setting:
    """An environment variable that the program itself has set."""

    name: str
    value: str
    frame: Optional[Frame] = None  # the user's line
    given: str = ""  # its value when the program began; "": it had none


@dataclass(frozen=True)
class Rendezvous:
    """A call of init_process_group: its arguments, and where they lead as seen from the node.

    `rank` and `world_size` are those of the call; None where it left them to the environment and that has
    none.
    """

    method: str  # "env" | "tcp" | "file" | "store" | another scheme
    at: float
    address: str = ""  # MASTER_ADDR, or the host of the URL or of the store
    port: Optional[int] = None
    file: str = ""  # of a FileStore
    file_used: bool = False  # it held keys before this process opened it
    rank: Optional[int] = None
    world_size: Optional[int] = None
    backend: str = ""
    timeout: Optional[float] = None  # seconds; None: torch's default
    frame: Optional[Frame] = None  # the user's line that calls
    settings: list[Setting] = field(
        default_factory=list
    )  # variables that the program has set, the last of each
    script: str = ""  # digest of the program's main file; "": it has none
    passed: bool = False  # the call has returned: the process group is there
    resolved: list[str] = field(default_factory=list)  # addresses of `address`, as this node resolves it
    unresolved: str = ""  # why it does not resolve: "NXDOMAIN", "timeout"; "": it does, or was not asked
    holder: str = ""  # who listens at the port, where `address` is this node's own; "": nobody, or not known
    agent_store: bool = False  # torchrun keeps the store, and no rank opens one, not even rank 0


@dataclass(frozen=True)
class MpiCall:
    """The MPI function that a rank has called and that has not returned. Ranks are world ranks.

    Numbers: -1 is MPI's own "any", -2 is not known, None has no part in this function.
    """

    name: str  # as the program writes it: "Allreduce", "recv"
    communicator: str = ""
    size: int = 0  # of the communicator; 0: not known
    ranks: list[int] = field(default_factory=list)  # of the communicator; empty: all, or not known
    dest: Optional[int] = None
    source: Optional[int] = None
    root: Optional[int] = None
    sendtag: Optional[int] = None
    recvtag: Optional[int] = None
    count: Optional[int] = None  # elements of the first buffer
    dtype: str = ""


@dataclass(frozen=True)
class Group:
    """One process group as one rank sees it."""

    name: str
    ranks: list[int] = field(default_factory=list)  # global; empty: not known
    enqueued: int = 0  # sequence number of the last collective this rank called
    completed: int = 0
    description: str = ""


@dataclass(frozen=True)
class Process:
    """A rank's process, or a child of it (a DataLoader worker), from /proc, over the last seconds."""

    pid: int
    state: str = "?"  # R S D T Z X, as /proc says
    command: str = ""
    wchan: str = ""
    threads: int = 0
    cpu_share: float = 0.0  # cores used over the window
    read_rate: float = 0.0  # bytes a second through read(), over the window
    write_rate: float = 0.0
    net_rate: float = 0.0  # bytes a second through its TCP sockets, acknowledged or received
    wakeups: float = 0.0  # voluntary context switches of its main thread a second
    memory: int = 0  # resident bytes
    role: str = ""  # "" | "loader" | "other"
    stacks: list[Stack] = field(default_factory=list)


@dataclass(frozen=True)
class RankEvidence:
    rank: int
    local_rank: int
    pid: int
    alive: bool
    phase: str = "init_process_group"
    exit: Optional[Exited] = None
    raised: list[Raised] = field(default_factory=list)  # in order of time
    stacks: list[Stack] = field(default_factory=list)
    stack_source: str = ""  # "hook" | "py-spy" | "faulthandler" | "": none could be had
    stack_moves: bool = False  # the main thread's stack differed between samples of the window
    still_for: float = 0.0  # since anything of this rank moved, strong or weak
    stuck_for: float = 0.0  # since it made real progress (counter, new stack, output, I/O)
    groups: list[Group] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)  # the recorder's newest, oldest first
    process: Optional[Process] = None
    children: list[Process] = field(default_factory=list)
    step_times: list[float] = field(
        default_factory=list
    )  # seconds between completed collectives, newest last
    initialized: Optional[bool] = None  # torch.distributed.is_initialized(); None: could not be asked
    backend: str = ""
    mpi: str = ""  # "" (none seen) | "loaded" (it cannot be asked) | "ready" | "ending" (its Python is over)
    mpi_call: Optional[MpiCall] = None
    last_output: str = ""  # last line it wrote
    last_output_at: float = 0.0
    last_lines: list[str] = field(default_factory=list)  # the last it wrote, newest last; bounded
    world_size: Optional[int] = None  # of its default process group, or as it was told; None: not known
    numbered_by: str = ""  # where `rank` comes from: "call" | "environment" | "spawn" | "": nobody said
    rendezvous: Optional[Rendezvous] = None  # None: init_process_group was not seen called
    calls: list[Collective] = field(
        default_factory=list
    )  # the newest that the program made, oldest first, from the hook's ring: also of a rank that is dead
    launcher: int = 0  # pid of the process that has started it


@dataclass(frozen=True)
class NodeEvidence:
    node: int
    host: str
    at: float
    phase: str
    ranks: list[RankEvidence] = field(default_factory=list)
    memory_limit: Optional[int] = None  # bytes, of the tightest memory cgroup
    memory_used: Optional[int] = None
    oom_kills: int = 0  # since the supervisor started, in its memory cgroup
    kernel: list[str] = field(default_factory=list)  # kernel log lines that name our processes
    shm_size: Optional[int] = None
    shm_used: Optional[int] = None
    throttled: Optional[float] = None  # share of periods in which the CPU quota bit
    launch_exit: Optional[Exited] = None  # torchrun's own
    launch_output: list[str] = field(default_factory=list)  # its last lines
    missing: list[str] = field(default_factory=list)  # "py-spy: not permitted (ptrace)"
    machine: str = (
        ""  # equal on nodes that share machine and network: there loopback leads from one to the other
    )
    addresses: list[str] = field(default_factory=list)  # of this node's interfaces, loopback left out


@dataclass(frozen=True)
class Lost:
    """A node that stopped answering."""

    node: int
    at: float  # when it was last heard, by the hub's clock
    closed: bool = False  # its connection was closed: its agent ended; else it is silent
    completed: int = 0  # collectives completed by its ranks together, as far as it told
    frozen: bool = False  # its kernel confirms what is sent to it, and its agent says nothing


@dataclass(frozen=True)
class JobEvidence:
    """Evidence of all nodes at one moment. The input of every run-time verdict rule."""

    job: str
    nodes: int
    world_size: Optional[int]
    why: str  # "call" | "still" | "death" | "asked" | "deadline" | "stop" | "ending" | "silence" | "apart"
    at: float
    evidence: list[NodeEvidence] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)  # nodes that did not answer in time
    lost: list[Lost] = field(default_factory=list)  # of these, who does not answer at all any more
    notice_after: float = 10.0
    names: list[str] = field(default_factory=list)  # of the nodes, in their order; as in JobPlan
    platform: str = ""  # likewise
    master_addr: str = ""  # as the gate has proved it; "": there was no gate
    master_port: int = 0


@dataclass(frozen=True)
class RankBeat:
    rank: int
    local_rank: int
    pid: int
    alive: bool
    phase: str
    stuck_for: float  # since real progress
    still_for: float  # since any movement, weak included
    waits: bool = False  # its main thread stands in a collective or in rendezvous
    completed: int = 0  # collectives completed, all groups
    exit: Optional[Exited] = None


@dataclass(frozen=True)
class Beat:
    """Sent by every supervisor every second or so."""

    node: int
    phase: str
    at: float
    ranks: list[RankBeat] = field(default_factory=list)
