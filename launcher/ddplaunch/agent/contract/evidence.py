"""The shape of evidence: the state of a running job's ranks at one moment.

Import these classes from `contract`, as all data that crosses a process border. Times named `at` are
wall-clock seconds since the epoch on the node that saw the event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from ddplaunch.agent.contract.words import Phase, PhaseName


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
    tid: int = 0  # the kernel's number of the thread; 0: unknown
    on_lock: bool = False  # it waits without a timeout for a futex that no other process can wake
    owns_gil: bool = False  # by py-spy
    native: str = ""  # the native function above its Python frames, "libfoo.so:do_io"; "": none is known
    crashed: bool = False  # the process has crashed in this thread
    daemon: Optional[bool] = None  # False: Python waits for its end; None: unknown


@dataclass(frozen=True)
class Raised:
    """An exception: uncaught (`handled` False), or seen in a log or an except block (`handled` True)."""

    type: str
    message: str
    at: float
    frames: list[Frame] = field(default_factory=list)  # innermost first
    handled: bool = False
    source: str = ""  # "hook" | "log" | "torchrun"
    cause: str = ""  # message of the exception that it was raised from


@dataclass(frozen=True)
class Handler:
    """A part of a program that runs when lines before it have raised, and that raises that on at its end, or
    ends the process.

    Each pair is a first and a last line.
    """

    kind: str  # "finally" | "except" | "with": the `__exit__` of its managers
    guarded: list[int]
    lines: list[int]


@dataclass(frozen=True)
class Branch:
    """Lines of a program that run only if it goes this way: the body of an `if`, `for` or `while`, its
    `else`, an `except`, or a `case`.

    For an `else`, `line` and `text` are those of the statement to which it belongs.
    """

    kind: str  # "if" | "else" | "for" | "while" | "except" | "case"
    line: int
    text: str  # source of that line; bounded
    lines: list[int]  # first and last line
    ends: str = ""  # "continue" | "break" | "return" | "raise": its last statement
    file_test: str = ""  # "os.path.exists(path)", if that decides; bounded
    guards: list[int] = field(default_factory=list)  # of an `except`: first and last line of its `try`
    variables: list[str] = field(default_factory=list)  # of the environment, that its test reads

    def has(self, line: int) -> bool:
        return self.lines[0] <= line <= self.lines[1]

    def protects(self, line: int) -> bool:
        """Whether it is an `except` of a `try` around this line."""
        return bool(self.guards) and self.guards[0] <= line <= self.guards[1]


@dataclass(frozen=True)
class Assignment:
    """Where a variable gets its value that a line hands on, as `loss` in `dist.all_reduce(loss)`.

    A loop that sets it counts, and so does the call that sets a parameter.
    """

    used: int  # the line that hands it on
    name: str  # "loss"
    file: str
    line: int
    text: str  # "loss = criterion(out, y)"; bounded
    back: int = 0  # 0: of what the line hands on; 1: of what that was made from, as `out`; and so on
    root: bool = False  # of the rank that it names as the root, and not of a tensor


@dataclass(frozen=True)
class Function:
    """A function in which ranks are or were, or the file's own level.

    Of its branches those are kept that such lines are in, or that leave a loop or the function before them,
    or a loop around them; the loops around these; a `while` with its test in such a line; and each `except`
    whose `try` has such a line.
    """

    name: str  # "Expert.forward"; "<module>"
    lines: list[int]  # first and last line
    branches: list[Branch] = field(default_factory=list)
    callers: list[Frame] = field(default_factory=list)  # all lines that call it by name, in the files read
    assignments: list[Assignment] = field(default_factory=list)  # of what such lines hand on


@dataclass(frozen=True)
class Exited:
    at: float
    code: Optional[int] = None
    signal: Optional[int] = None  # both None: it is gone, and its status is unknown
    by_us: bool = False  # ended by the supervisor, or by torchrun after another rank's end
    at_once: bool = False  # with code 0, while its Python was not shutting down, as by os._exit


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
    frames: list[Frame] = field(default_factory=list)  # of the call, innermost first
    peer: Optional[int] = None  # of a point-to-point operation: the other side's global rank; -1: any. Of a
    # broadcast, scatter, gather or reduce in the ring or on a stack: its root
    state: str = ""  # torch's "scheduled" | "started" | "completed", or the ring's "entered" | "returned" |
    # "issued" (it returned, and completes later) | "waiting" (the main thread is in its wait()) | "waited" |
    # "raised"; "": unknown
    tag: Optional[int] = None  # of a point-to-point operation; None: unknown
    took: Optional[float] = None  # seconds until it returned or was waited for; None: not yet, or unknown


@dataclass(frozen=True)
class CallSite:
    """A line of the program that calls a collective."""

    op: str
    line: Frame


@dataclass(frozen=True)
class CallSequence:
    """The lines from which a rank called the collectives of one group, one after another, to its last call.

    Longer than RankEvidence.calls, and small: where ranks have parted may lie hundreds of calls back.
    """

    group: str  # "": the calls of new_group, from the first one on
    first: int  # number of its first call among the group's calls
    sites: list[CallSite]
    calls: list[int]  # of each call, its place in `sites`


@dataclass(frozen=True)
class Signalled:
    """A signal that has come to a program that handles it."""

    number: int
    at: float  # when it came last, or a little later, when another one came
    handler: Optional[Frame] = None  # the first line of the program's function


@dataclass(frozen=True)
class Setting:
    """An environment variable that the program itself has set."""

    name: str
    value: str
    frame: Optional[Frame] = None  # the user's line
    given: str = ""  # its value when the program began; "": it had none


@dataclass(frozen=True)
class Rendezvous:
    """A call of init_process_group: its arguments, and their meaning on this node.

    `rank` and `world_size` are those of the call, else of the environment; None without both.
    """

    method: str  # "env" | "tcp" | "file" | "store" | another scheme
    at: float
    address: str = ""  # MASTER_ADDR, or the host of the URL or of the store
    port: Optional[int] = None
    file: str = ""  # of a FileStore
    file_used: bool = False  # the file had keys before this process opened it
    rank: Optional[int] = None
    world_size: Optional[int] = None
    backend: str = ""
    timeout: Optional[float] = None  # seconds; None: torch's default
    frame: Optional[Frame] = None  # the user's line of the call
    settings: list[Setting] = field(
        default_factory=list
    )  # variables that the program has set, the last of each
    script: str = ""  # digest of the program's main file; "": it has none
    passed: bool = False  # the call has returned: there is a process group
    resolved: list[str] = field(default_factory=list)  # addresses of `address`, as this node resolves it
    unresolved: str = ""  # why it does not resolve: "NXDOMAIN", "timeout"; "": it does, or was not looked up
    holder: str = ""  # the process at the port, where `address` is this node's own; "": none, or unknown
    agent_store: bool = False  # torchrun has the store: no rank opens one, not even rank 0
    given_port: Optional[int] = None  # MASTER_PORT as the launcher has set it
    given_world: Optional[int] = None  # WORLD_SIZE as the launcher has set it; None: it has not
    given_rank: Optional[int] = None  # RANK, likewise


@dataclass(frozen=True)
class MpiCall:
    """The MPI function that a rank has called and that has not returned. Ranks are world ranks.

    Numbers: -1 is MPI's own "any", -2 unknown, None not a parameter of this function.
    """

    name: str  # as in the program: "Allreduce", "recv"
    communicator: str = ""
    size: int = 0  # of the communicator; 0: unknown
    ranks: list[int] = field(default_factory=list)  # of the communicator; empty: all, or unknown
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
    ranks: list[int] = field(default_factory=list)  # global; empty: unknown
    enqueued: int = 0  # sequence number of the last collective this rank called
    completed: int = 0
    description: str = ""


@dataclass(frozen=True)
class Wait:
    """The operation on a file for which a main thread waits in the kernel, or the lock for which it tries."""

    functions: list[str] = field(default_factory=list)  # of the kernel, innermost first; bounded
    file: str = ""  # its path; "": unknown
    mount: str = ""  # where the file system of `file` is mounted
    kind: str = ""  # of that file system: "nfs4", "ext4"
    source: str = ""  # of that file system: "nas:/export", "/dev/sda1"
    holder: int = 0  # pid that holds the lock on `file`; -1: unknown; 0: none was seen, or there is no lock
    command: str = ""  # of the holder


TERMINAL = "the terminal"


@dataclass(frozen=True)
class Tie:
    """What a main thread waits for from another process."""

    what: str  # "end" of a child | "data" | "room" for what it writes
    by: str = ""  # "a pipe" | "a Unix socket" | "TCP" | TERMINAL
    pids: list[int] = field(default_factory=list)  # the child, or processes of the job at the other end
    commands: list[str] = field(default_factory=list)  # of these
    address: str = ""  # of the other end, of TCP alone; the name of the terminal


@dataclass(frozen=True)
class Mutex:
    """The lock of native code for which a main thread waits."""

    owner: int  # thread that holds it, by the lock itself
    pid: int  # whose thread that is: the process itself, or one above it


@dataclass(frozen=True)
class Process:
    """A rank's process, or a child of it (a DataLoader worker), from /proc, over the last seconds."""

    pid: int
    state: str = "?"  # R S D T Z X, as in /proc
    command: str = ""
    wchan: str = ""
    threads: int = 0
    cpu_share: float = 0.0  # cores used over the window
    read_rate: float = 0.0  # bytes a second through read(), over the window
    write_rate: float = 0.0
    net_rate: float = 0.0  # bytes a second through its TCP sockets, acknowledged or received
    net_bytes: int = 0  # the same, since its sockets were opened
    wakeups: float = 0.0  # voluntary context switches of its main thread a second
    memory: int = 0  # resident bytes
    role: str = ""  # "" | "loader" | "other"
    stacks: list[Stack] = field(default_factory=list)
    waits_for: Optional[Wait] = None  # None: for no file that is known
    ran: float = (
        0.0  # share of the last seconds in which its main thread ran; of a suspect alone, as what follows
    )
    delayed: float = 0.0  # share in which it was runnable, and had no CPU
    throttled: Optional[float] = None  # share of periods that its cgroup's quota has cut; None: it has none
    cpu_limit: Optional[float] = None  # CPUs of that quota
    exit_signal: int = 0  # of a dead child, waited for or not; 0: none
    exit_code: int = 0  # the same
    name: str = ""  # that multiprocessing has given it
    tie: Optional[Tie] = None  # of a suspect alone, as what follows; None: none is known
    mutex: Optional[Mutex] = None
    unseen_threads: int = -1  # of which there is no stack, without our hook's; -1: not counted


@dataclass(frozen=True)
class Stand:
    """A place where a rank's main thread was seen, once a second."""

    kind: str  # "collective" | "loader" | "": elsewhere
    seconds: int
    frame: Optional[Frame] = None  # the user's line


@dataclass(frozen=True)
class LastActs:
    """Seconds since a rank last did this. Of ranks with Gloo that have one connection to each other rank."""

    sent: float  # data to another rank
    spoke: float  # data by any connection
    ran: float  # its main thread had a CPU
    worked: float  # one of Gloo's threads for collectives had one


@dataclass(frozen=True)
class RankEvidence:
    rank: int
    local_rank: int
    pid: int
    alive: bool
    phase: PhaseName = Phase.INIT
    exit: Optional[Exited] = None
    raised: list[Raised] = field(default_factory=list)  # in order of time
    stacks: list[Stack] = field(default_factory=list)
    stack_source: str = ""  # "hook" | "py-spy" | "debug server" | "faulthandler" | "crash": as it crashed, by
    # faulthandler | "": there are none
    gil_wait: float = 0.0  # seconds for which the hook's thread has asked for the GIL in vain; 0: it has not
    stack_moves: bool = False  # the main thread's stack differed between samples of the window
    still_for: float = 0.0  # seconds since it last did something or computed; see supervisor.progress
    stuck_for: float = 0.0  # seconds since it last did something
    groups: list[Group] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)  # the recorder's newest, oldest first
    process: Optional[Process] = None
    children: list[Process] = field(default_factory=list)
    step_times: list[float] = field(
        default_factory=list
    )  # seconds from a completed collective to the next of its kind, newest last
    initialized: Optional[bool] = None  # torch.distributed.is_initialized(); None: unknown
    backend: str = ""
    mpi: str = ""  # "" (none seen) | "loaded" (no answer) | "ready" | "ending" (its Python is over)
    mpi_call: Optional[MpiCall] = None
    last_output: str = ""  # its last line
    last_output_at: float = 0.0
    last_lines: list[str] = field(default_factory=list)  # its last lines, newest last; bounded
    world_size: Optional[int] = None  # of its default process group, else of call or environment
    numbered_by: str = ""  # source of `rank`: "call" | "environment" | "spawn" | "": unknown
    rendezvous: Optional[Rendezvous] = None  # None: no call of init_process_group is known
    calls: list[Collective] = field(
        default_factory=list
    )  # the newest of the program, oldest first, from the hook's ring: also of a dead rank
    sequences: list[CallSequence] = field(default_factory=list)  # of each group, as far as the ring goes back
    launcher: int = 0  # pid of its parent
    restart: Optional[int] = None  # torchrun's count of its restarts; None: another launcher has started it
    max_restarts: Optional[int] = None  # how many torchrun allows
    stands: list[Stand] = field(default_factory=list)  # of the last minute, the most frequent first
    device: str = ""  # GPU of its process groups, as in CUDA_VISIBLE_DEVICES; "": not known
    broadcasting: int = 0  # bytes of the model's state that torch broadcasts in the call where it stands
    stands_in: Optional[Collective] = None  # its main thread's call, by its stack's arguments; from outside
    posture: str = ""  # of Posture; "": unknown
    last_acts: Optional[LastActs] = None  # from outside, without stacks
    signals: list[Signalled] = field(default_factory=list)
    unrecorded: str = ""  # torch's version, if it keeps no record of calls with Gloo: then `groups` have only
    # its count of calls, and the last one may be open
    keys: list[str] = field(default_factory=list)  # of the store, for which its main thread waits; bounded
    awaited_file: str = ""  # for which its main thread looks again and again; "" if that is not known
    in_flight: list[Raised] = field(
        default_factory=list
    )  # what its main thread handles now, or did when it raised what has ended it, and then what that was
    # raised in; of a hook alone
    left: list[Raised] = field(
        default_factory=list
    )  # the call of sys.exit that ended it, its argument as the message; then what it handled there
    variables: dict[str, str] = field(default_factory=dict)  # of the environment with which it was started:
    # those that branches of the program read, each with a digest of its value; "": it is not set


@dataclass(frozen=True)
class Xid:
    """An event of a GPU that NVIDIA's driver has written into the kernel's log."""

    number: int
    gpu: str  # its address on the PCI bus, "0000:65:00"
    at: float
    text: str  # the line
    pid: Optional[int] = None  # of the process, where the line names one


@dataclass(frozen=True)
class Dump:
    """One flight recorder of a rank, whole, as a pickle for torch's tools. Nothing of ours unpickles it."""

    rank: int
    backend: str
    size: int  # bytes of the pickle
    crc: int  # of the pickle, as in a zip archive
    packed: str  # the pickle deflated, without a header, as base64; free of secrets


@dataclass(frozen=True)
class RasRank:
    rank: int  # in its communicator
    host: str = ""  # address of its node; "": NCCL does not say
    pid: int = 0


@dataclass(frozen=True)
class RasCount:
    """Ranks of a communicator that have launched equally many operations of one kind."""

    op: str  # "AllReduce"; "" before NCCL 2.26, which counts all kinds together
    count: int
    size: int
    ranks: list[RasRank] = field(default_factory=list)  # empty: not named


@dataclass(frozen=True)
class RasCommunicator:
    name: str  # NCCL's hash
    size: int
    counts: list[RasCount] = field(default_factory=list)  # of kinds in which ranks differ, the most first
    silent: list[RasRank] = field(default_factory=list)  # whose processes did not answer NCCL


@dataclass(frozen=True)
class Ras:
    """NCCL's word on all communicators of the job."""

    version: str
    total: int  # communicators
    communicators: list[RasCommunicator] = field(default_factory=list)  # not in order; at most 8
    dead: list[str] = field(default_factory=list)  # "process 4711 on 10.0.0.5", unreachable for a minute


@dataclass(frozen=True)
class Torchrun:
    """A torchrun, and how it looks for those on other nodes: by its command line and its PET_ variables."""

    pid: int
    nnodes: str = "1"  # "2", or "1:4"
    sized: bool = False  # somebody has said for how many nodes: without a word it is for one
    backend: str = "static"
    endpoint: str = ""  # "n0:29400", of a static one "MASTER_ADDR:MASTER_PORT"; "": a rendezvous of its own
    run_id: str = "none"
    node_rank: Optional[int] = None  # c10d ignores it
    opens_store: Optional[bool] = None  # it does so at the endpoint, in place of another; None: unknown
    local_addr: str = ""  # the address that it gives to its peers; "": its machine's full name
    has_started: bool = False  # it has, or has had, workers


@dataclass(frozen=True)
class NodeEvidence:
    node: int
    host: str
    at: float
    phase: PhaseName
    ranks: list[RankEvidence] = field(default_factory=list)
    memory_limit: Optional[int] = None  # bytes, of the tightest memory cgroup
    memory_used: Optional[int] = None
    oom_kills: int = 0  # since the supervisor started, in its memory cgroup
    kernel: list[str] = field(default_factory=list)  # kernel log lines that name our processes
    shm_size: Optional[int] = None
    shm_used: Optional[int] = None
    shm_peak: Optional[int] = None  # the most that it was seen to hold
    throttled: Optional[float] = None  # share of periods that the CPU quota has cut, since the start
    busiest: list[Process] = field(default_factory=list)  # not of the job, most CPU first; of a starved node
    launch_exit: Optional[Exited] = None  # torchrun's own
    launch_output: list[str] = field(default_factory=list)  # its last lines
    launch_port: Optional[int] = None  # taken, so that it could not listen there; 0: it does not say which
    launch_port_holder: str = ""  # the process that has it; "": it was not seen
    missing: list[str] = field(default_factory=list)  # "py-spy: not permitted (ptrace)"
    machine: str = ""  # equal on nodes that share machine and network namespace: loopback connects them
    addresses: list[str] = field(default_factory=list)  # of this node's interfaces, without loopback
    xids: list[Xid] = field(default_factory=list)  # of GPUs that our processes use, oldest first
    gpus: list[str] = field(
        default_factory=list
    )  # nvidia-smi's lines, where ranks with NCCL make no progress
    loops: dict[str, list[list[int]]] = field(
        default_factory=dict
    )  # first and last line of the loops in each
    # of the user's files in which a rank waits
    handlers: dict[str, list[Handler]] = field(
        default_factory=dict
    )  # of these files, where a rank handles an exception
    functions: dict[str, list[Function]] = field(
        default_factory=dict
    )  # of the lines where ranks are or ended, and of their calls, by file
    dumps: list[Dump] = field(default_factory=list)  # as many as the hub has room for
    dumps_left_out: int = 0
    lines: dict[str, str] = field(default_factory=dict)  # text of source lines at which threads stand, by
    # "FILE:LINE" as in their frames
    ras: Optional[Ras] = None  # of node 0, where ranks with NCCL make no progress
    torchruns: list[Torchrun] = field(default_factory=list)  # that live, without those inside ranks


@dataclass(frozen=True)
class Lost:
    """A node that stopped answering."""

    node: int
    at: float  # of its last message, by the hub's clock
    closed: bool = False  # its connection was closed: its agent ended; else it is silent
    completed: int = 0  # collectives completed by its ranks together, by its last beat
    frozen: bool = False  # its kernel acknowledges data, and its agent is silent


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
    lost: list[Lost] = field(default_factory=list)  # of these, nodes that are gone
    notice_after: float = 10.0
    names: list[str] = field(default_factory=list)  # of the nodes, in their order; as in JobPlan
    platform: str = ""  # as in JobPlan
    master_addr: str = ""  # as tried by the gate; "": there was no gate
    master_port: int = 0


@dataclass(frozen=True)
class RankPace:
    rank: int
    step: Optional[float] = None  # seconds, the mean of about a minute
    in_collectives: Optional[float] = None  # share of the last minute in which its main thread was there
    for_data: Optional[float] = None  # share in which it waited for a batch


@dataclass(frozen=True)
class JobPace:
    """The medians of the ranks whose pace is known."""

    ranks: int
    step: Optional[float] = None
    in_collectives: Optional[float] = None
    for_data: Optional[float] = None
    first: list[RankPace] = field(default_factory=list)  # that wait least for the others; at most 8
