"""Every verdict code: one line of meaning, and the exit code of a job that ends by it.

A code is a stable name: printed with its sentence, accepted by `ddplaunch explain`, read by scripts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddplaunch.agent.contract import Exit, Verdict, codec


@dataclass(frozen=True)
class Entry:
    code: str
    meaning: str
    exit_code: int


def _entries(exit_code: int, meanings: dict[str, str]) -> dict[str, Entry]:
    return {code: Entry(code, meaning, exit_code) for code, meaning in meanings.items()}


CATALOGUE: dict[str, Entry] = {
    # The job is wired wrongly: another try ends the same way.
    **_entries(
        Exit.MISCONFIGURED,
        {
            "master-is-loopback": "the master's name leads a node that is not the master to itself",
            "master-is-not-node-zero": "the master's address belongs to another machine",
            "port-ephemeral": "the chosen port lies where the kernel hands out ports to anybody",
            "world-size-differs": "nodes were started with different sizes",
            "rank-duplicate": "two processes claim the same place in the job",
            "rendezvous-overridden": "the script itself leads its ranks elsewhere than the job's rendezvous",
            "key-differs": "nodes that join one another were given different keys",
            "version-differs": "torch, NCCL or Python differ between nodes",
            "environment-differs": "a setting that must be the same on all nodes is not",
            "nccl-interface-missing": "NCCL finds no network interface that it may take",
            "nccl-interface-wrong": "NCCL was told to take an interface that peers do not reach",
            "gloo-interface-wrong": "Gloo finds no such interface, or takes one that peers do not reach",
            "shm-too-small": "/dev/shm is too small for what the job will put there",  # noqa: S108 - a name
            "memlock-too-small": "ranks may lock too little memory for RDMA",
            "memory-too-small": "a node has less memory than the job asks for",
            "backend-unfit": "the job's collectives cannot run on this backend here",
            "image-lacks": "the interpreter, torch or the script is not there",
            "secret-missing": "a secret that the job names is not set, or its file is not there",
        },
    ),
    # A node or the network is at fault: it may work elsewhere, or later.
    **_entries(
        Exit.NODE_AT_FAULT,
        {
            "dns-not-found": "a node's name does not resolve",
            "dns-unanswered": "the name server does not answer",
            "dns-disagrees": "a node's name leads to another machine than the node's own",
            "ip-family-mixed": "a name leads by IPv4 and not by IPv6, or nodes have no family in common",
            "port-in-use": "the port is already held by another process",
            "port-rejected": "something on the way refuses connections to a port where a node listens",
            "port-refused": "the host answers, but nobody listens on the port",
            "port-filtered": "packets to the port vanish",
            "host-unreachable": "there is no route to the host",
            "network-one-way": "one node reaches the other, but not the other way round",
            "network-lossy": "many packets between two nodes are lost, large and small",
            "mtu-black-hole": "small messages pass, large ones vanish",
            "store-shared": "another job answers where this one has its rendezvous",
            "stranger-listens": "something that is not of this job answers on the port",
            "node-missing": "a node never came",
            "network-lost": "a node, or the way to it, went away while the job ran",
            "cpu-busy": "the node's CPUs do not suffice for its ranks, or others take them",
            "gpu-missing": "a node has fewer GPUs, or RDMA devices, than the job asks for",
            "gpu-held": "a GPU that the job will use is held by somebody else",
            "hardware-differs": "the nodes' GPUs, or their networks, are not of one kind",
            "rdma-unfit": "a node's RDMA devices are there, and cannot carry the job",
            "disk-full": "there is no room where the job writes",
            "clock-skew": "the nodes' clocks differ",
            "files-too-few": "the hub may not open as many files as the job has nodes",
        },
    ),
    **_entries(
        Exit.WORKER_FAILED,
        {
            "launch-failed": "the launch command itself failed, before or beside its workers",
            "rank-failed": "a rank raised an exception",
            "rank-exited-early": "a rank finished while the others still train",
            "rank-killed": "a rank was killed by a signal",
        },
    ),
    **_entries(
        Exit.STOPPED, {"node-evicted": "the scheduler, or a person, ends the job or takes a node away"}
    ),
    **_entries(Exit.OUT_OF_MEMORY, {"rank-killed-memory": "a rank was killed for memory"}),
    **_entries(
        Exit.HANG,
        {
            "rank-late-to-init": "some ranks have not called init_process_group",
            "rank-in-dataloader": "a rank waits for its data while the others wait for it",
            "rank-stopped": "a rank is stopped from outside, by a signal, a debugger or a frozen cgroup",
            "rank-in-user-code": "a rank is busy outside any collective while the others wait for it",
            "collective-mismatch": "ranks called different collectives at the same place in the sequence",
            "mpi-partial-collective": "an MPI collective lacks ranks that will never come to it",
            "mpi-unmatched": "an MPI send and its receive do not match",
            "mpi-rank-lost": "a rank is gone, or never reached MPI_Init",
            "exception-swallowed": "a rank caught an exception and went on without its collective",
            "slow": "everything moves, slowly",
            "unknown": "the evidence does not decide",
        },
    ),
}

_FROM_THE_SCRIPT = frozenset(["dns-not-found", "port-in-use", "store-shared"])


def load_verdicts(data: object) -> list[Verdict]:
    """Verdicts as another process sent them. Raises ContractError, also for a code that is not known here."""
    verdicts: list[Verdict] = codec.load(list[Verdict], data)
    for each in verdicts:
        if each.code not in CATALOGUE:
            raise codec.ContractError(f"there is no verdict {each.code[:40]!r}")
    return verdicts


def load_exit_code(data: object) -> int:
    """The exit code of a process, as another one sent it. Raises ContractError."""
    code: int = codec.load(int, data)
    if not 0 <= code <= 255:
        raise codec.ContractError(f"no process ends with {code}")
    return code


def exit_code(verdict: Verdict) -> int:
    """The exit code of a job that ends by this verdict.

    What the gate finds may heal or work elsewhere. The same at a rank's own call was chosen by the script,
    which fails the same way wherever it is tried again.
    """
    if verdict.where == "run" and verdict.code in _FROM_THE_SCRIPT:
        return Exit.MISCONFIGURED
    return CATALOGUE[verdict.code].exit_code
