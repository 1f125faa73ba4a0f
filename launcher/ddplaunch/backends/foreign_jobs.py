"""Python programs that run the agent from memory on another machine: no file is written there.

The backends use them to look at jobs that ddplaunch did not start. They must not change such a job.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ddplaunch.agent.contract import Bundle, Env, JobEvidence, NodeEvidence, codec
from ddplaunch.agent.diagnosis.run import decide, stacks
from ddplaunch.agent.evidence import py_spy
from ddplaunch.agent.text.quantities import count
from ddplaunch.backends import files
from ddplaunch.backends.job import PROCESS, Handle, Job, State
from ddplaunch.errors import NotFoundError, UsageError

_BEGIN: Final = """
import os, sys
if sys.version_info < (3, 9):
    sys.exit("its python3 is %d.%d, and the agent needs 3.9" % sys.version_info[:2])
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
except OSError:
    pass

def in_memory(data):
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("ddplaunch", 0)
    else:
        import ctypes
        system_call = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
        number = ctypes.CDLL(None).syscall(system_call, b"ddplaunch", 0)
    with open(number, "wb", closefd=False) as file:
        file.write(data)
    return f"/proc/{os.getpid()}/fd/{number}"
"""
"""If memory runs out meanwhile, the kernel ends this process and no rank, unless it ends whole containers.

A Python that was built for a C library older than 2.27, such as conda's, has no memfd_create.
"""
_END: Final = """
agent = in_memory(sys.stdin.buffer.read(int(sys.argv.pop(1))))
os.execv(sys.executable, [sys.executable, "-I", "-S", agent, *sys.argv[1:]])
"""
AGENT: Final = _BEGIN + _END
"""A program that reads the agent from stdin and runs it. Its first argument is the agent's size in bytes."""
READY: Final = "ready."
"""Begins the line for which the agent is held back. It is not valid base64."""
WANTED: Final = "py-spy"
_PY_SPY: Final = f"""
import shutil, zlib
size, machine = int(sys.argv.pop(1)), sys.argv.pop(1)
is_wanted = machine == os.uname().machine and not shutil.which("py-spy")
print({READY!r}, {WANTED!r} if is_wanted else "", flush=True)
if is_wanted:
    os.environ[{Env.PY_SPY!r}] = in_memory(zlib.decompress(sys.stdin.buffer.read(size)))
"""
AGENT_WITH_PY_SPY: Final = _BEGIN + _PY_SPY + _END
"""Takes the words of a `PySpy` before AGENT's own. Prints READY, and WANTED if it reads py-spy first."""
_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
"""uname's name for a machine, by the machine's number in the header of an ELF file (elf.h)."""


class PySpy(NamedTuple):
    """A compressed program, and the kind of machine that can run it; "" for none."""

    packed: bytes
    machine: str

    @property
    def words(self) -> list[str]:
        """Return its words among the arguments of AGENT_WITH_PY_SPY."""
        return [str(len(self.packed)), self.machine]


def own_py_spy() -> str | None:
    """Return the path of py-spy on this machine; None if there is none."""
    return py_spy.find(sys.executable)


def packed_py_spy() -> PySpy:
    """Return this machine's py-spy in the form in which it travels; empty if there is none for Linux."""
    path = own_py_spy()
    if path is None:
        return PySpy(b"", "")
    program = Path(path).read_bytes()
    number = int.from_bytes(program[18:20], sys.byteorder)
    machine = _MACHINES.get(number, "") if program.startswith(b"\x7fELF") else ""
    return PySpy(zlib.compress(program) if machine else b"", machine)


def environment_with_py_spy() -> dict[str, str]:
    """Return this process's environment with the path of its py-spy, for machines that see the same files."""
    return {**os.environ, Env.PY_SPY: own_py_spy() or ""}


_PID: Final = re.compile(r"pid:(?://)?(\d{1,10})")
_LONGEST: Final = 80
"""Characters in a job's name, at the most."""
_BLIND: Final = (
    "stacks need py-spy on the machine of the ranks (`pip install py-spy`) and the right to trace: run this "
    "as root there, or have root set the sysctl kernel.yama.ptrace_scope to 0. A program that calls "
    "torch.distributed.debug.start_debug_server() needs neither"
)
_BLIND_IN_PODS: Final = (
    "stacks need the right to trace, which a container of `--debug-image IMAGE` has, and the ranks' user "
    "where the nodes' sysctl kernel.yama.ptrace_scope is 0; and py-spy, in the image or on the machine "
    "where you run this, if it is of the same kind"
)
_NONE_IN_PODS: Final = (
    "seeing ranks that run as another user than their container takes the right to trace, which a container "
    "of `--debug-image IMAGE` has"
)
_BLIND_BESIDE_THEM: Final = (
    "stacks need py-spy, in the debug image, or on the machine where you run this if it is of the pods' "
    "kind, and nodes whose sysctl kernel.yama.ptrace_scope is below 3"
)
_UNCOUNTED: Final = (
    "calls of torch.distributed cannot be counted from outside. Next time, start the job with `ddplaunch "
    "run -- COMMAND`, which records them; a program that calls torch.distributed.debug.start_debug_server() "
    "records them, too"
)


def process_named(text: str) -> int | None:
    """Return the process that a command's argument names, as in `pid:1234`; None: it names a job.

    Raises UsageError for a process without a number: no job is called that.
    """
    match = _PID.fullmatch(text)
    if match is None and text.startswith("pid:"):
        raise UsageError(f"{text}: wanted the number of a process", hint="for example `pid:1234`")
    return int(match[1]) if match else None


def pods_named(text: str) -> str | None:
    """Return what comes after kubernetes:// if that names anybody's pods; None: it names a job.

    That is an object that owns them, as in kubernetes://NAMESPACE/KIND/NAME, or labels after a `?`.
    """
    scheme, _, path = text.partition("://")
    return path if scheme == "kubernetes" and ("?" in path or path.count("/") > 1) else None


def diagnose(pid: int) -> tuple[Job, Bundle]:
    """Return the job to which a process on this machine belongs, and the evidence of its ranks here.

    Raises NotFoundError if there is no such process, and UsageError if it belongs to no job with ranks.
    """
    from ddplaunch.agent.outside import find_ranks
    from ddplaunch.agent.outside.look import evidence_of

    tree = find_ranks.processes()
    if pid not in tree.table:
        raise NotFoundError(
            f"there is no process {pid} on this machine",
            hint="name the torchrun, the mpirun, or any rank of the job: `pgrep -af torchrun` shows them",
        )
    try:
        found = find_ranks.ranks_of_process(pid, tree)
        if not found.members:
            found = find_ranks.spawned_by(pid, tree)
    except find_ranks.NoRanksError as error:
        raise UsageError(str(error), hint=error.hint) from error
    if not found.members:
        raise UsageError(
            f"process {pid} ({short_name(tree.table[pid].command)}) has started no ranks that can be seen",
            hint="torchrun and mpirun number their ranks in the environment; only py-spy sees those of "
            "mp.spawn. Run this as the job's user, or as root",
        )
    name = short_name(tree.table[pid].command)
    made = bundle(name, find_ranks.started(pid), [evidence_of(found)])
    return explained(Job(Handle(PROCESS, str(pid)), State.RUNNING, made.started, name), made), made


def short_name(command: str) -> str:
    """Return 'python train.py' from a command line, without its arguments, because they may hold a secret."""
    program, *words = command.split() or [""]
    script = next((word for word in words if word.endswith(".py") and not word.startswith("-")), "")
    return " ".join(filter(None, [program.rpartition("/")[2], script.rpartition("/")[2]]))[:_LONGEST]


def unpacked(text: str, node: int) -> NodeEvidence | None:
    """Return the evidence that `agent.pyz look` has printed; None if it is not whole."""
    try:
        data = files.inflate(base64.b64decode("".join(text.split()), validate=True))
        return replace(files.load(NodeEvidence, data), node=node)
    except (ValueError, codec.ContractError):
        return None


def bundle(
    name: str,
    started: float,
    nodes: Sequence[NodeEvidence],
    silent: Sequence[int] = (),
    names: Sequence[str] = (),
) -> Bundle:
    """Return the evidence of the nodes, with the verdicts on it. `silent`: the nodes that gave none.

    `names`: the names of all nodes, in order; without them, the hosts' names if all have answered.
    """
    from ddplaunch.agent.outside.look import NOTICE_AFTER

    answered = {each.node for each in nodes}
    evidence = JobEvidence(
        job=name,
        nodes=len(answered.union(silent)),
        world_size=None,  # ranks that were not found may be running on other machines
        why="asked",
        at=time.time(),
        evidence=list(nodes),
        silent=list(silent),
        notice_after=NOTICE_AFTER,
        names=list(names) or ([] if silent else [each.host for each in nodes]),
    )
    return Bundle(
        job=name,
        attempt=0,
        nodes=evidence.nodes,
        nproc_per_node=None,
        started=started,
        written=evidence.at,
        evidence=evidence,
        verdicts=decide.judge(evidence),
    )


def explained(job: Job, bundle: Bundle | None, in_debug_container: bool = False) -> Job:
    """Return a job that was looked at from outside, with what that has shown and what would show more.

    Any other job is returned unchanged: its hub has left a status and events.
    """
    evidence = bundle.evidence if bundle else None
    if bundle is None or evidence is None or bundle.events or job.status is not None or job.state.ended:
        return job
    ranks = [rank for node in evidence.evidence for rank in node.ranks if rank.alive]
    detail = "" if bundle.verdicts else f"{count(len(ranks), 'rank')} seen; nothing shows that they hang"
    in_pods = job.handle.target == "kubernetes" and not in_debug_container
    if in_pods and not ranks:
        hint = _NONE_IN_PODS
    elif all(rank.stacks for rank in ranks):
        in_mpi = any(stacks.mpi_function(stacks.main(rank.stacks)) for rank in ranks)
        counted = bool(ranks) and all(rank.groups for rank in ranks)
        hint = "" if in_mpi or counted else _UNCOUNTED  # nothing counts MPI's calls
    elif in_pods:
        hint = _BLIND_IN_PODS
    else:
        hint = _BLIND_BESIDE_THEM if in_debug_container else _BLIND
    return replace(job, detail=detail, hint=hint)
