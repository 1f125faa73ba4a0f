"""Finds the ranks of a job among this machine's processes, by their environments and by who started whom.

A rank is the topmost process with the rank's numbers in its environment; its children inherit them. A process
with numbers above ranks that have other numbers is a launcher. Ranks of one job share MASTER_ADDR,
MASTER_PORT, the name of torchrun's rendezvous, and the size of the world. Everything except `processes` is
pure.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from ddplaunch.agent.evidence import py_spy
from ddplaunch.agent.supervisor import rank_roles
from ddplaunch.agent.supervisor.rank_roles import ENVIRONMENT, SPAWN, Member
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.printable import HintedError

_JOB = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "WORLD_SIZE")
_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_MPI_JOB = ("PMIX_NAMESPACE", "PMI_JOBID", *_MPI_SIZES)
_LIBRARIES = ("libmpi", "libtorch")
SPAWNED = "--multiprocessing-fork"
"""Last word on the command line of a process that multiprocessing has started as a new program."""


class NoRanksError(HintedError):
    """We found no ranks, or those of several jobs."""


class Seen(NamedTuple):
    """A process. `environment` is empty if it may not be read."""

    pid: int
    parent: int
    program: str  # the file name of its executable
    environment: Mapping[str, str]
    command: str = ""


class JobRanks(NamedTuple):
    """The ranks of one job on this machine. `port`: where they meet; 0: it is not known."""

    members: list[Member]
    port: int = 0


def processes() -> Tree:
    """Return all processes that can be seen here, without ourselves."""
    table = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        stat = proc.stat(pid)
        if stat is not None and stat.state not in "ZX" and pid != os.getpid():
            table[pid] = Seen(
                pid, stat.parent, proc.program(pid), proc.environment(pid), proc.command_line(pid)
            )
    return Tree(table)


class Tree:
    """Processes, and who started whom. `loaded`: whether a process has loaded a library."""

    def __init__(
        self, table: Mapping[int, Seen], loaded: Callable[[int, str], bool] = proc.maps_library
    ) -> None:
        self.table = table
        self.loaded = loaded
        self._children: dict[int, list[int]] = {}
        for pid in sorted(table):
            self._children.setdefault(table[pid].parent, []).append(pid)

    def below(self, pid: int) -> list[int]:
        """Return a process and its descendants, parents first."""
        pids = [pid] if pid in self.table else []
        for each in pids:
            pids += self._children.get(each, [])
        return pids

    def roots(self) -> list[int]:
        """Return the processes whose parents cannot be seen here."""
        return [pid for pid, each in sorted(self.table.items()) if each.parent not in self.table]

    def value(self, pid: int, name: str) -> str:
        """Return a variable from a process's environment; "" if it is not set."""
        return self.table[pid].environment.get(name, "")


def ranks_of_process(pid: int, tree: Tree) -> JobRanks:
    """Return the ranks of the job to which a process belongs, as launcher, as rank or as a rank's child.

    This includes the ranks below other launchers on this machine. Raises NoRanksError for ranks of several
    jobs.
    """
    return _of_one_job(tree.below(pid), tree, f"process {pid}")


def ranks_of_variable(name: str, value: str, tree: Tree) -> JobRanks:
    """Return the ranks of the job whose processes have this variable. Raises NoRanksError."""
    own = {pid: each for pid, each in tree.table.items() if each.environment.get(name) == value}
    return _of_one_job(list(own), Tree(own, tree.loaded), f"{name}={value}")


def folder_of_hub(variable: str, tree: Tree) -> str:
    """Return the folder of the hub with this variable, NAME=VALUE, in its environment; "" if none is here.

    A user's own batch script may start its nodes with `run --join`: then the job has a hub that no record of
    ours names.
    """
    name, _, value = variable.partition("=")
    for each in tree.table.values():
        words = each.command.split()
        if "hub" in words and "--folder" in words[:-1] and each.environment.get(name) == value:
            return words[words.index("--folder") + 1]
    return ""


def ranks_of_machine(tree: Tree) -> JobRanks:
    """Return the ranks of the only job in a container. Raises NoRanksError for several jobs."""
    own, what = list(tree.table), "this container"
    job_ranks = _of_one_job(own, tree, what)
    return job_ranks if job_ranks.members else _of_one_job(own, _one_rank_each(tree), what)


def _one_rank_each(tree: Tree) -> Tree:
    """Return the processes of a container that may be its only rank, each with that rank's local number.

    Kubernetes' operators number containers and set no LOCAL_RANK. If multiprocessing has started programs,
    these may be the ranks.
    """
    if any(each.command.endswith(SPAWNED) for each in tree.table.values()):
        return Tree({})
    own = {
        pid: each._replace(environment={**each.environment, "LOCAL_RANK": "0"})
        for pid, each in tree.table.items()
        if each.environment.get("MASTER_ADDR") and tree.loaded(pid, "libtorch")
    }
    return Tree(own, tree.loaded)


def _of_one_job(own: list[int], tree: Tree, what: str) -> JobRanks:
    for of_mpi, names in ((False, _JOB), (True, _MPI_JOB)):
        claims = _Claims(tree, of_mpi, names)
        jobs = {claims.jobs[pid] for pid in own if pid in claims.jobs}
        if len(jobs) > 1:
            first = {claims.jobs[pid]: f"pid:{pid}" for pid in reversed(own) if pid in claims.jobs}
            raise NoRanksError(
                f"{what} has the ranks of {len(jobs)} jobs",
                f"name one of the ranks of one of them: {', '.join(sorted(first.values()))}",
            )
        for job in jobs:
            port = "" if of_mpi else job[1]
            return JobRanks(claims.members(job, set(own)), int(port) if port.isdecimal() else 0)
    return JobRanks([])


class _Claims:
    """The processes that have a rank's number, without launchers. `jobs`: what names the job of each one."""

    def __init__(self, tree: Tree, of_mpi: bool, names: Sequence[str]) -> None:
        self._tree, self._of_mpi = tree, of_mpi
        numbers = {pid: rank_roles.numbers_in(each.environment, of_mpi) for pid, each in tree.table.items()}
        known = {
            pid: each
            for pid, each in numbers.items()
            # A scheduler numbers everything that it starts.
            if each is not None and (not of_mpi or any(tree.loaded(pid, name) for name in _LIBRARIES))
        }
        self._numbers = {
            pid: own
            for pid, own in known.items()
            if all(known.get(each, own) == own for each in tree.below(pid))
        }
        self.jobs = {pid: tuple(tree.value(pid, name) for name in names) for pid in self._numbers}

    def members(self, job: tuple[str, ...], own: set[int]) -> list[Member]:
        """Return the ranks of a job; of several processes with one number, the one in our `own` tree.

        A number that others claim twice is left out: one of the processes may be left over from an earlier
        job.
        """
        by_rank: dict[int, list[int]] = {}
        for pid in self._tops(job):
            by_rank.setdefault(self._numbers[pid].rank or 0, []).append(pid)
        members = []
        for rank, pids in sorted(by_rank.items()):
            ours = [pid for pid in pids if own.intersection(self._tree.below(pid))] or pids
            if len(ours) == 1:
                numbers = self._numbers[ours[0]]
                program = self._program(ours[0])
                local = rank if numbers.local_rank is None else numbers.local_rank
                size = numbers.world_size or self._mpi_size(ours[0])
                members.append(Member(program, program, rank, local, size, ENVIRONMENT))
        return members

    def _mpi_size(self, pid: int) -> Optional[int]:
        """Return the number of ranks from an MPI launcher's variables; None if there are none."""
        sizes = (self._tree.value(pid, name) for name in _MPI_SIZES if self._of_mpi)
        return next((int(size) for size in sizes if size.isdecimal()), None)

    def _tops(self, job: tuple[str, ...]) -> list[int]:
        """Return those processes of a job above which no other process of the job has a number."""
        inside: set[int] = set()
        for pid in self.jobs:
            inside.update(self._tree.below(pid)[1:])
        return [pid for pid, its in self.jobs.items() if its == job and pid not in inside]

    def _program(self, top: int) -> int:
        """Return a rank's Python: a shell script around it has the same numbers."""
        family = [pid for pid in self._tree.below(top) if self._numbers.get(pid) == self._numbers[top]]
        return next((pid for pid in family if self._tree.table[pid].program.startswith("python")), top)


def started(pid: int) -> float:
    """Return when a process started, in seconds since the epoch; now if it is gone."""
    stat, now = proc.stat(pid), time.time()
    if stat is None:
        return now
    return now - time.clock_gettime(time.CLOCK_BOOTTIME) + stat.started / os.sysconf("SC_CLK_TCK")


_STACKS = 10.0


def spawned_by(pid: int, tree: Tree) -> JobRanks:
    """Return the ranks below a process or beside it, numbered from 0; none without py-spy."""
    above = tree.table[pid].parent if _may_be_one(pid, tree) else pid
    children = [each for each in tree.below(above)[1:] if _may_be_one(each, tree)]
    program = py_spy.find(sys.executable)
    numbers = py_spy.spawned_indices(program, children, time.monotonic() + _STACKS) if program else {}
    # A data loader's worker is a copy of its rank, including the stack.
    copies = {each for one in numbers for each in tree.below(one)[1:]}
    return JobRanks(
        [
            Member(each, each, number, number, None, SPAWN)
            for each, number in sorted(numbers.items(), key=lambda item: item[1])
            if each not in copies
        ]
    )


def _may_be_one(pid: int, tree: Tree) -> bool:
    """Whether multiprocessing has started it, as a new program or as a copy of its parent."""
    own, parent = tree.table[pid], tree.table.get(tree.table[pid].parent)
    if not own.program.startswith("python"):
        return False
    return own.command.endswith(SPAWNED) or (parent is not None and own.command == parent.command)
