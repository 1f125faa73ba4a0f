"""The launch command and its ranks, as they start and end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any, Optional

from ddplaunch.agent.contract import Exited, JobPlan, Phase
from ddplaunch.agent.evidence import mpirun, torchrun
from ddplaunch.agent.supervisor import rank_evidence, ranks
from ddplaunch.agent.supervisor.candidates import Candidates, ancestors
from ddplaunch.agent.supervisor.hooks import Hooks, Line
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.output import Console
from ddplaunch.agent.supervisor.rank_logs import RankLogs
from ddplaunch.agent.supervisor.rank_roles import ENVIRONMENT, Member
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor


class RankTracker:
    def __init__(
        self,
        plan: JobPlan,
        node: int,
        place: LaunchContext,
        hooks: Hooks,
        console: Console,
        redactor: Redactor = NO_SECRETS,
    ) -> None:
        self._plan = plan
        self._node = node
        self._place = place
        self._hooks = hooks
        self.ranks: list[Rank] = []  # by number; two processes may claim one
        self.candidates = Candidates()
        self.logs = RankLogs(node, place, console, redactor)
        self.rounds = 0  # how often torchrun has started workers anew
        self.launch: Optional[subprocess.Popen[bytes]] = None
        self.launch_exit: Optional[Exited] = None
        self.dismissed = False  # the job has ended: no rank will come any more

    @property
    def launches_mpi(self) -> bool:
        """Whether the command line itself is an MPI launcher, and no keeper is between."""
        return self.candidates.of_mpi

    @property
    def alive(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.alive]

    @property
    def phase(self) -> str:
        if self.launch_exit is not None:
            return Phase.ENDED
        phases = [rank.phase for rank in self.ranks]
        if not phases:
            return Phase.RENDEZVOUS
        if Phase.ENDED in phases:
            return Phase.FINALIZING
        return min(phases, key=Phase.ORDER.index)

    @property
    def launch_output(self) -> list[str]:
        return self.logs.quoted(self.logs.launch.kept)

    # --- coming and going

    def discover(self) -> None:
        """Look for workers that no hook announced. MPI's ranks are announced by their keepers."""
        if not self._plan.mpi:
            self.candidates.find()
            self._review()

    def join(self, line: Line) -> None:
        """Take in a process with the hook that has said hello, or a rank's keeper."""
        if line.role == "keeper":
            self._keep(line)
        elif self._plan.mpi:
            self._claim(line)
        elif line.role == "rank":
            self.candidates.joined(line)
            self._review(line.pid)
        elif line.role == "any" and all(rank.stand_in for rank in self.ranks):
            elders = {rank.program for rank in self.alive}
            if not elders.intersection(ancestors(line.pid)):
                self._add(Member(line.pid, line.pid, 0, 0, None, ""), stand_in=True)

    def meet(self, line: Line, message: dict[str, Any]) -> Optional[Rank]:
        """Take in that a process calls init_process_group. Returns the rank that it is."""
        rendezvous = rank_evidence.rendezvous(message)
        if not self._plan.mpi:
            self.candidates.called(line, rendezvous.rank, rendezvous.world_size)
            self._review(line.pid)
        rank = self.rank_of(line)
        if rank is not None:
            rank.rendezvous = rendezvous
            rank.world_size = rendezvous.world_size or rank.world_size
        return rank

    def strangers(self) -> list[Line]:
        """Processes with the hook of which it is open how they were started."""
        return self.candidates.unasked(self._hooks.lines.values())

    def recognise(self) -> None:
        """Use what strangers have answered."""
        if self.candidates.answered(self._hooks.lines.values()):
            self._review()

    def _review(self, joined: int = 0) -> None:
        """Look again at who is a rank; `joined`: a process that counts even if it has ended already."""
        seen = self.candidates.view()
        self._drop([rank for rank in self.ranks if rank.pid in seen.launchers])
        for member in seen.members:
            known = next((r for r in self.ranks if r.was(member.pid) and not r.stand_in), None)
            if known is None and (
                proc.stat(member.pid) is not None or joined in (member.pid, member.program)
            ):
                self._add(member)
            elif known is not None and known.alive:
                self._number(known, member)
        self.ranks.sort(key=lambda rank: (rank.number, rank.pid))

    def _drop(self, ranks: Sequence[Rank]) -> None:
        for rank in ranks:
            rank.close()
            self.logs.forget(rank)
        self.ranks = [rank for rank in self.ranks if rank not in ranks]

    def _number(self, rank: Rank, member: Member) -> None:
        rank.number, rank.local, rank.numbered_by = member.rank, member.local_rank, member.numbered_by
        rank.world_size = member.world_size or rank.world_size
        rank.line = self._hooks.lines.get(member.program, rank.line)

    def _keep(self, line: Line) -> None:
        if line.rank is None or line.local_rank is None or line.child is None:
            return
        rank = self._add(Member(line.child, line.child, line.rank, line.local_rank, None, ENVIRONMENT))
        if rank is not None:
            rank.keeper = line
            for each in list(self._hooks.lines.values()):  # it may have been faster than its keeper
                self._claim(each)

    def _claim(self, line: Line) -> None:
        """Give a rank's own line to that rank, if its keeper has told of it already."""
        family = {line.pid, *ancestors(line.pid)} if line.role == "rank" else set()
        for rank in self.alive:
            if rank.pid in family:
                rank.line = line

    def rank_of(self, line: Line) -> Optional[Rank]:
        return next((rank for rank in self.ranks if rank.line is line), None)

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
            code = int(any(ranks.bad(rank.exit) for rank in self.ranks))
            self.launch_exit = Exited(time.time(), code, by_us=self.dismissed)
        return found

    def _all_have_ended(self) -> bool:
        """Whether all ranks of a node whose ranks node 0 starts have come and ended."""
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

    def _add(self, member: Member, stand_in: bool = False) -> Optional[Rank]:
        """The new rank; None where a living one stands in its place."""
        if stand_in and self.alive:
            return None
        before = [rank for rank in self.ranks if rank.number == member.rank and not rank.alive]
        if any(rank.was(member.pid) for rank in before):
            return None
        if not stand_in:
            # Restarted workers take the places of those that have ended.
            self.rounds += any(not rank.stand_in for rank in before)
            for rank in before:
                self.candidates.forget(rank.pid)
            self._drop([rank for rank in self.ranks if rank.stand_in or rank in before])
        fresh = Rank(member.rank, member.local_rank, member.pid, stand_in)
        self._number(fresh, member)
        self.ranks = sorted([*self.ranks, fresh], key=lambda rank: (rank.number, rank.pid))
        self.logs.follow(fresh, self.launches_mpi)
        return fresh

    # --- what they print

    def finish_output(self) -> None:
        """Read everything that is left, at the end; and the ends that only torchrun or mpirun saw."""
        said = _text(self._place.launch_log)
        for number, (local_rank, pid, code) in torchrun.exits(said).items():
            rank = next((rank for rank in self.ranks if rank.pid == pid), None)
            if rank is None and not any(each.number == number for each in self.ranks):
                rank = Rank(number, local_rank, pid)
                self.ranks.append(rank)
            if rank is not None and (not rank.alive or rank.look_for_end()):
                rank.learn_exit(code)
        for number, code in mpirun.exits(said).items() if self.launches_mpi else ():
            for rank in self.ranks:
                if rank.number == number and (not rank.alive or rank.look_for_end()):
                    rank.learn_exit(code)
        self.ranks.sort(key=lambda rank: (rank.number, rank.pid))
        # After those that only torchrun saw are known: what they wrote is theirs.
        self.logs.finish(self.ranks, lambda local: self._node * (self._plan.nproc_per_node or 0) + local)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
