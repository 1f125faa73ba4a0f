"""Every verdict code: the exit code of a job that ends by it, its meaning in one line, and its page.

A code is a stable name: printed with its sentence, accepted by `ddplaunch explain`, read by scripts. The
rules that find it are in `gate/decide.py` and `run/decide.py`; a test compares them, and the pages, with this
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import Exit, Verdict, codec


class Entry(NamedTuple):
    """A verdict code. `in_run`: the exit code where it is found in a run, if that is another one."""

    code: str
    exit_code: int
    meaning: str
    in_run: Optional[int] = None

    @property
    def page(self) -> str:
        """Return the file in `report/pages` that `ddplaunch explain` prints."""
        return f"{self.code}.md"


_CONFIG, _NODE, _HANG = Exit.MISCONFIGURED, Exit.NODE_AT_FAULT, Exit.HANG
_WORKER, _MEMORY, _STOPPED = Exit.WORKER_FAILED, Exit.OUT_OF_MEMORY, Exit.STOPPED

GATE = (
    Entry("backend-unfit", _CONFIG, "the job's collectives cannot run on this backend here"),
    Entry("clock-skew", _NODE, "the nodes' clocks differ"),
    Entry("container-unusable", _NODE, "a node cannot start the job's container"),
    Entry("cpu-busy", _NODE, "the node has too few CPUs for its ranks, or others use them"),
    Entry("disk-full", _NODE, "there is no room where the job writes"),
    Entry("dns-disagrees", _NODE, "a node's name leads to another machine than the node's own"),
    Entry("dns-not-found", _NODE, "a node's name does not resolve", _CONFIG),
    Entry("dns-unanswered", _NODE, "the name server does not answer"),
    Entry("environment-differs", _CONFIG, "a setting that must be the same on all nodes is not"),
    Entry("files-too-few", _NODE, "the hub cannot open as many files as the job has nodes"),
    Entry(
        "gloo-interface-wrong", _CONFIG, "Gloo finds no such interface, or takes one that peers do not reach"
    ),
    Entry("gpu-held", _NODE, "a GPU that the job will use is held by somebody else"),
    Entry("gpu-missing", _NODE, "a node has fewer GPUs, or RDMA devices, than the job asks for"),
    Entry("hardware-differs", _NODE, "the nodes' GPUs, or their networks, are not of one kind"),
    Entry("host-unreachable", _NODE, "there is no route to the host"),
    Entry("image-lacks", _CONFIG, "the interpreter, torch or the script is not there"),
    Entry("ip-family-mixed", _NODE, "a name works over IPv4 but not over IPv6, or nodes share no IP version"),
    Entry("job-file-wrong", _CONFIG, "the job file asks for the impossible, or contradicts itself"),
    Entry("key-differs", _CONFIG, "nodes that join one another were given different keys"),
    Entry("launch-failed", _WORKER, "the launch command itself failed, before or beside its workers"),
    Entry(
        "master-is-loopback",
        _CONFIG,
        "on a node that is not the master, the master's name points to that node itself",
    ),
    Entry("master-is-not-node-zero", _CONFIG, "the master's address belongs to another machine"),
    Entry("memlock-too-small", _CONFIG, "ranks may lock too little memory for RDMA"),
    Entry("memory-too-small", _CONFIG, "a node has less memory than the job asks for"),
    Entry("mtu-black-hole", _NODE, "small messages pass, large ones vanish"),
    Entry("nccl-interface-missing", _CONFIG, "NCCL finds no network interface that it may use"),
    Entry("nccl-interface-wrong", _CONFIG, "NCCL was told to take an interface that peers do not reach"),
    Entry("network-lossy", _NODE, "many packets between two nodes are lost, large and small"),
    Entry("network-one-way", _NODE, "one node reaches the other, but not the other way round"),
    Entry("node-missing", _NODE, "a node never came"),
    Entry("port-ephemeral", _CONFIG, "the chosen port lies where the kernel hands out ports to anybody"),
    Entry("port-filtered", _NODE, "packets to the port vanish"),
    Entry("port-in-use", _NODE, "the port is already held by another process", _CONFIG),
    Entry("port-refused", _NODE, "the host answers, but nobody listens on the port"),
    Entry("port-rejected", _NODE, "something on the way refuses connections to a port where a node listens"),
    Entry("rank-duplicate", _CONFIG, "two processes claim the same place in the job"),
    Entry("rdma-unfit", _NODE, "a node's RDMA devices are there, and cannot carry the job"),
    Entry("secret-missing", _CONFIG, "a secret that the job names is not set, or its file is not there"),
    Entry("shm-too-small", _CONFIG, "/dev/shm is too small for what the job will put there"),  # noqa: S108 - a name
    Entry("store-shared", _NODE, "another job answers where this one has its rendezvous", _CONFIG),
    Entry("stranger-listens", _NODE, "something that does not belong to this job answers on the port"),
    Entry("threads-too-few", _NODE, "the ranks cannot start as many processes and threads as they need"),
    Entry("torch-untested", _CONFIG, "a node's torch is older than any that ddplaunch was tried with"),
    Entry("version-differs", _CONFIG, "torch, NCCL or Python differ between nodes"),
    Entry("world-size-differs", _CONFIG, "nodes were started with different sizes"),
)
"""What keeps a job from its start. What a script has chosen fails the same way wherever it is tried again:
such codes end another attempt when they are found `in_run`, at a rank's own call."""

RUN = (
    Entry(
        "async-not-waited", _WORKER, "a rank began an asynchronous operation and ended without waiting for it"
    ),
    Entry(
        "collective-mismatch", _HANG, "ranks called different collectives at the same place in the sequence"
    ),
    Entry("collective-skipped", _HANG, "a rank skipped a collective, and is out of step with the others"),
    Entry(
        "cpu-starved",
        _HANG,
        "a rank has work to do and gets no CPU, because of its quota or of other processes",
    ),
    Entry("device-shared", _WORKER, "ranks of one node use one GPU"),
    Entry("exception-swallowed", _HANG, "a rank caught an exception and went on without its collective"),
    Entry("gil-held", _HANG, "native code of a rank holds the GIL, so that none of its Python runs"),
    Entry("gpu-stuck", _HANG, "all ranks called a collective, and their GPUs do not finish it"),
    Entry(
        "group-in-two-threads",
        _HANG,
        "two threads of a rank call collectives of one process group at once",
    ),
    Entry(
        "group-partial",
        _HANG,
        "only some ranks of a group call its collective, or groups wait for one another",
    ),
    Entry("io-stuck", _HANG, "a rank waits in the kernel for storage that does not answer"),
    Entry("lock-deadlock", _HANG, "the threads of a rank, or of its DataLoader worker, wait for each other"),
    Entry("mpi-partial-collective", _HANG, "an MPI collective lacks ranks that will never come to it"),
    Entry("mpi-rank-lost", _HANG, "a rank is gone, or never reached MPI_Init"),
    Entry("mpi-unmatched", _HANG, "an MPI send and its receive do not match"),
    Entry("network-lost", _NODE, "a node, or the network path to it, went away while the job ran"),
    Entry("node-evicted", _STOPPED, "the scheduler, or a person, ends the job or takes a node away"),
    Entry("p2p-deadlock", _HANG, "sends and receives wait for one another, or do not match"),
    Entry("rank-exited-early", _WORKER, "a rank finished while the others still train"),
    Entry("rank-failed", _WORKER, "a rank raised an exception"),
    Entry("rank-in-dataloader", _HANG, "a rank waits for its data while the others wait for it"),
    Entry("rank-in-user-code", _HANG, "a rank is busy outside any collective while the others wait for it"),
    Entry("rank-killed", _WORKER, "a rank was killed by a signal"),
    Entry(
        "rank-killed-bus", _WORKER, "a rank was killed by SIGBUS: /dev/shm ran full, or a mapped file was cut"
    ),
    Entry("rank-killed-memory", _MEMORY, "a rank was killed for memory"),
    Entry("rank-late-to-init", _HANG, "some ranks have not called init_process_group"),
    Entry(
        "rank-stopped", _HANG, "a rank is stopped from outside, by a signal, a debugger or a frozen cgroup"
    ),
    Entry(
        "rendezvous-overridden",
        _CONFIG,
        "the script sends its ranks to another rendezvous than the job's",
    ),
    Entry("slow", _HANG, "everything moves, but slowly, because the others wait for a rank"),
    Entry("slow-broadcast", _HANG, "parameters are being broadcast slowly: not hung"),
    Entry("unknown", _HANG, "the evidence does not decide"),
)
"""What goes wrong while a job runs."""

CATALOGUE = {entry.code: entry for entry in (*GATE, *RUN)}


def check_end(verdicts: Sequence[Verdict], exit_code: int = 0) -> None:
    """Raises ContractError where another process sent a verdict, or an exit code, that there is not."""
    for each in verdicts:
        if each.code not in CATALOGUE:
            raise codec.ContractError(f"there is no verdict {each.code[:40]!r}")
    if not 0 <= exit_code <= 255:
        raise codec.ContractError(f"no process ends with {exit_code}")


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of a job that ends by this verdict."""
    entry = CATALOGUE[verdict.code]
    return entry.exit_code if verdict.where != "run" or entry.in_run is None else entry.in_run
