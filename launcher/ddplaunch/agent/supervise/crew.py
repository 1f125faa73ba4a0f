"""Who is there: the launch command, its ranks, and their log files. Keeps the list; decides nothing."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import subprocess
import time
from collections.abc import Iterable
from typing import Callable, Optional

from ddplaunch.agent.contract import Exited, JobPlan, Phase
from ddplaunch.agent.evidence import mpirun, proc, torchrun
from ddplaunch.agent.supervise import ranks
from ddplaunch.agent.supervise.hooks import Hooks, Line
from ddplaunch.agent.supervise.launch import Place
from ddplaunch.agent.supervise.output import Console, Tail
from ddplaunch.agent.supervise.ranks import Rank

_LAUNCH_KEPT = 40
"""Last lines of the launch command's own output."""


class Crew:
    def __init__(self, plan: JobPlan, node: int, place: Place, hooks: Hooks, console: Console) -> None:
        self._plan = plan
        self._node = node
        self._place = place
        self._hooks = hooks
        self._console = console
        self.ranks: dict[int, Rank] = {}
        self.rounds = 0  # how often torchrun has started workers anew
        self.launch: Optional[subprocess.Popen[bytes]] = None
        self.launch_exit: Optional[Exited] = None
        self.dismissed = False  # the job has ended: no rank will come any more
        self.launch_tail = Tail(place.launch_log)
        self.launches_mpi = False  # the command line itself is an MPI launcher, and no keeper is between
        self._launch_speaks: Optional[int] = None  # the rank that writes into the launch command's own log
        self._tails: dict[str, tuple[Tail, int]] = {}  # path -> tail, rank

    @property
    def alive(self) -> list[Rank]:
        return [rank for rank in self.ranks.values() if rank.alive]

    @property
    def phase(self) -> str:
        if self.launch_exit is not None:
            return Phase.ENDED
        phases = [rank.phase for rank in self.ranks.values()]
        if not phases:
            return Phase.RENDEZVOUS
        if Phase.ENDED in phases:
            return Phase.FINALIZING
        return min(phases, key=Phase.ORDER.index)

    @property
    def launch_output(self) -> list[str]:
        return [line.decode(errors="replace") for line in self.launch_tail.kept]

    # --- coming and going

    def discover(self) -> None:
        """Workers that no hook announced. MPI's ranks are announced by their keepers."""
        if self._plan.mpi:
            return
        known = {rank.pid for rank in self.ranks.values() if not rank.stand_in}
        for number, local, pid in ranks.find(proc.children(os.getpid()), known, self.launches_mpi):
            self._add(number, local, pid)

    def join(self, line: Line) -> None:
        """A process with the hook said hello, or a rank's keeper."""
        if line.role == "keeper":
            self._keep(line)
        elif self._plan.mpi:
            self._claim(line)
        elif line.role == "rank":
            known = {rank.pid for rank in self.alive if not rank.stand_in}
            pid = ranks.outermost(line.pid, known, self.launches_mpi)
            # Of a process that has ended already, only its own hello tells who it was.
            number, local = ranks.of_process(pid, self.launches_mpi) or (line.rank, line.local_rank)
            if pid not in known and number is not None and local is not None:
                self._add(number, local, pid)
            # Also one that ended before its hello was heard: what else it said is its own.
            rank = next((rank for rank in self.ranks.values() if rank.pid == pid and not rank.stand_in), None)
            if rank is not None:
                rank.line = line
        elif line.role == "any" and all(rank.stand_in for rank in self.ranks.values()):
            elders = {rank.program for rank in self.alive}
            if not elders.intersection(_ancestors(line.pid)):
                self._add(0, 0, line.pid, stand_in=True)
                if 0 in self.ranks and self.ranks[0].pid == line.pid:
                    self.ranks[0].line = line

    def _keep(self, line: Line) -> None:
        if line.rank is None or line.local_rank is None or line.child is None:
            return
        self._add(line.rank, line.local_rank, line.child)
        rank = self.ranks.get(line.rank)
        if rank is not None and rank.pid == line.child:
            rank.keeper = line
            for each in list(self._hooks.lines.values()):  # it may have been faster than its keeper
                self._claim(each)

    def _claim(self, line: Line) -> None:
        """Give a rank's own line to that rank, if its keeper has told of it already."""
        family = {line.pid, *_ancestors(line.pid)} if line.role == "rank" else set()
        for rank in self.alive:
            if rank.pid in family:
                rank.line = line

    def rank_of(self, line: Line) -> Optional[Rank]:
        return next((rank for rank in self.ranks.values() if rank.line is line), None)

    def ended(self) -> list[Rank]:
        """Ranks whose end was not seen before; and the launch command's own end."""
        found = [rank for rank in self.alive if rank.look_for_end()]
        if self.launch is not None and self.launch_exit is None and self.launch.poll() is not None:
            code = self.launch.returncode
            self.launch_exit = Exited(time.time(), code if code >= 0 else None, -code if code < 0 else None)
        for rank in found:  # a rank that is the launch command may be known only after that was buried
            if self.launch is not None and self.launch.pid == rank.pid and self.launch.returncode is not None:
                rank.learn_exit(self.launch.returncode)
        if self.launch is None and self._plan.mpi and self._all_have_ended():
            code = int(any(ranks.bad(rank.exit) for rank in self.ranks.values()))
            self.launch_exit = Exited(time.time(), code, by_us=self.dismissed)
        return found

    def _all_have_ended(self) -> bool:
        """Of a node whose ranks are started from node 0: those that will come have come, and none is left."""
        return not self.alive and (self.dismissed or len(self.ranks) == self._plan.nproc_per_node)

    def reap(self) -> None:
        """Bury the orphans that became our children."""
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            while found is not None and (self.launch is None or found.si_pid != self.launch.pid):
                os.waitpid(found.si_pid, 0)
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return

    def _add(self, number: int, local: int, pid: int, stand_in: bool = False) -> None:
        old = self.ranks.get(number)
        if old is not None and not old.stand_in and (old.alive or old.was(pid)):
            return  # two living processes with one number: the first is watched
        if stand_in and old is not None and old.alive:
            return
        if not stand_in:
            self.ranks = {n: rank for n, rank in self.ranks.items() if not rank.stand_in}
            self.rounds += old is not None and not old.stand_in
        self.ranks[number] = Rank(number, local, pid, stand_in)
        self.ranks = dict(sorted(self.ranks.items()))
        files = proc.output_files(pid)
        if files:  # else it may be gone already, and the launch command's log be all there is of it
            self._launch_speaks = number if self._place.launch_log in files else None
            # From the first worker on, torchrun only says what we say better. mpirun carries their output.
            self.launch_tail.shown = self._launch_speaks is not None or self.launches_mpi
        for path in files:
            self._follow(path, number)

    # --- what they print

    def read_output(self) -> None:
        """Carry what was written since the last time to the console, unless nobody reads that."""
        if self._console.full:
            return self._console.flush()
        for tail, number, keep in self._all_tails():
            if tail.read(self._writer(number), keep):
                self._spoke(tail, number)
            self._note_tracebacks(tail, number)
        return self._console.flush()

    def finish_output(self) -> None:
        """Everything that is left, at the end; and the ends that only torchrun saw."""
        for path in glob.glob(
            os.path.join(glob.escape(self._place.ranks), "*", "attempt_*", "*", "std*.log")
        ):
            local = path.split(os.sep)[-2]
            if local.isdigit():
                self._follow(path, self._number_of(int(local)))
        for tail, number, keep in self._all_tails():
            tail.close(self._writer(number), keep)
            self._spoke(tail, number)
            self._note_tracebacks(tail, number)
        for number, (local_rank, pid, code) in torchrun.exits(_text(self._place.launch_log)).items():
            rank = self.ranks.setdefault(number, Rank(number, local_rank, pid))
            if rank.pid == pid and (not rank.alive or rank.look_for_end()):
                rank.learn_exit(code)
        for number, code in mpirun.exits(_text(self._place.launch_log)).items() if self.launches_mpi else ():
            known = self.ranks.get(number)
            if known is not None and (not known.alive or known.look_for_end()):
                known.learn_exit(code)

    def _all_tails(self) -> Iterable[tuple[Tail, Optional[int], int]]:
        """Tail, the rank that writes there, and how many last lines to keep."""
        yield self.launch_tail, self._launch_speaks, _LAUNCH_KEPT
        for tail, number in self._tails.values():
            yield tail, number, 1

    def _writer(self, number: Optional[int]) -> Callable[[list[bytes]], None]:
        label = "launch" if number is None else number
        return functools.partial(self._console.write, f"[{self._node}/{label}] ".encode())

    def _follow(self, path: str, number: int) -> None:
        if path == self._place.launch_log or path in self._tails:
            return
        self._tails[path] = (Tail(path), number)

    def _spoke(self, tail: Tail, number: Optional[int]) -> None:
        rank = None if number is None else self.ranks.get(number)
        if rank is not None and tail.last_line:
            rank.news = True
            rank.last_output, rank.last_output_at = tail.last_line, time.time()

    def _note_tracebacks(self, tail: Tail, number: Optional[int]) -> None:
        rank = None if number is None else self.ranks.get(number)
        if rank is not None:
            for raised in tail.raised:
                rank.add(dataclasses.replace(raised, handled=True))
        tail.raised.clear()

    def _number_of(self, local: int) -> int:
        for rank in self.ranks.values():
            if rank.local == local:
                return rank.number
        return self._node * (self._plan.nproc_per_node or 0) + local


def _ancestors(pid: int) -> Iterable[int]:
    stat = proc.stat(pid)
    while stat is not None and stat.parent > 1:
        yield stat.parent
        stat = proc.stat(stat.parent)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
