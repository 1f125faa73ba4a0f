"""The launch command and its ranks, as they start and end. `supervisor` calls it; it ends nothing."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from ddplaunch.agent.contract import Exited, JobPlan, Phase, PhaseName
from ddplaunch.agent.evidence import program_output
from ddplaunch.agent.supervisor import launch_options, rank_evidence, ranks
from ddplaunch.agent.supervisor.hooks import HookMessage, Hooks, Line
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.output import Console, RankLogs
from ddplaunch.agent.supervisor.rank_roles import ENVIRONMENT, Candidates, Member, ancestors
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc, processes, torchrun
from ddplaunch.agent.text.redact import NO_SECRETS, Redactor

_REPORT = 4 << 20
"""Bytes at the end of the launch command's output in which we look for torchrun's report."""


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
        self.node = node
        self._place = place
        self._hooks = hooks
        self.ranks: list[Rank] = []  # by number; two processes may claim one
        self.candidates = Candidates()
        self.logs = RankLogs(node, place, console, redactor)
        self.attempt = 0  # how often the launch command has replaced ranks by new ones
        self.least_nodes: Optional[int] = None  # with how few torchrun goes on; None: it needs all of them
        self._past: dict[int, int] = {}  # when each rank of an earlier attempt was started, by pid
        self._output_from = 0  # bytes of the launch command's output that came before this attempt
        self._unreported: list[Rank] = []  # their ends were noted between two calls of `ended`
        self.launch: Optional[subprocess.Popen[bytes]] = None
        self._launch_end: list[Optional[int]] = []
        self.launch_exit: Optional[Exited] = None
        self.dismissed = False  # the job has ended, so no more ranks will start

    @property
    def launches_mpi(self) -> bool:
        """Whether the command line itself is an MPI launcher, without keepers."""
        return self.candidates.of_mpi

    @property
    def alive(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.alive]

    @property
    def phase(self) -> PhaseName:
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

    def begin(self, launch: subprocess.Popen[bytes]) -> None:
        """Watch a launch command that has just been started."""
        self.launch, self._launch_end = launch, [processes.open_pid(launch.pid)]

    def end_descriptors(self) -> list[Optional[int]]:
        """Return descriptors that turn readable when a rank or launch command ends; None before Linux 5.3."""
        return [*self._launch_end, *(rank.fileno() for rank in self.alive)]

    def discover(self) -> None:
        """Look for workers without a hook. Ranks that have keepers are reported by these."""
        if not self._plan.keepers:
            self.candidates.find()
            self._review()

    def note_connected(self, line: Line) -> None:
        """Add a process whose hook has connected, or a rank's keeper."""
        rank = self.rank_of(line)
        if rank is not None:  # it was seen between its hook's connection and this message
            self.logs.follow(rank, self.launches_mpi)
        if line.role == "keeper":
            self._keep(line)
        elif self._plan.keepers:
            self._claim(line)
        elif line.role == "rank":
            self.candidates.note_connected(line)
            self._review(line.pid)
        elif line.role == "any" and all(rank.placeholder for rank in self.ranks):
            elders = {rank.program for rank in self.alive}
            if torchrun.is_process(proc.words(line.pid)):
                # What ran before it was no rank either: now its workers are being waited for.
                self._drop([rank for rank in self.ranks if not rank.alive])
            elif not elders.intersection(ancestors(line.pid)):
                self._add(Member(line.pid, line.pid, 0, 0, None, ""), placeholder=True)

    def note_rendezvous(self, line: Line, message: dict[str, Any]) -> Optional[Rank]:
        """Note a process's call of init_process_group. Returns its rank, if the process is one."""
        rendezvous = rank_evidence.rendezvous_from(message)
        if not self._plan.keepers:
            self.candidates.note_call(line, rendezvous.rank, rendezvous.world_size)
            self._review(line.pid)
        rank = self.rank_of(line)
        if rank is not None:
            rank.rendezvous = rendezvous
            rank.world_size = rendezvous.world_size or rank.world_size
        return rank

    def note_spawned(self, line: Line, index: int, parent: int) -> None:
        """Note that torch's mp.spawn has started a process as its parent's child number `index`."""
        if not self._plan.keepers:
            before = [r for r in self.ranks if self.candidates.was_spawned(r.program, index, parent)]
            self._set_aside([rank for rank in before if self._has_ended(rank)])
            self.candidates.note_spawned(line, index, parent)
            self._review(line.pid)

    def choose_to_ask(self) -> list[Line]:
        """Return the processes with the hook that should be asked how they were started."""
        return self.candidates.choose_to_ask(self._hooks.lines.values())

    def recognise(self) -> None:
        """Use the answers of the processes that `choose_to_ask` returned."""
        if self.candidates.take_answers(self._hooks.lines.values()):
            self._review()

    def _review(self, joined: int = 0) -> None:
        """Update the ranks from the candidates. `joined`: a process that counts although it has ended."""
        seen = self.candidates.assign_roles()
        self._drop([rank for rank in self.ranks if rank.pid in seen.launchers])
        for member in seen.members:
            if self._is_past(member.pid):
                continue
            known = next((r for r in self.ranks if r.is_or_was(member.pid) and not r.placeholder), None)
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
        line = self._hooks.lines.get(member.program, rank.line)
        if line is not rank.line:
            rank.line = line
            self.logs.follow(rank, self.launches_mpi)

    def _keep(self, line: Line) -> None:
        if line.rank is None or line.local_rank is None or line.child is None:
            return
        rank = self._add(Member(line.child, line.child, line.rank, line.local_rank, None, ENVIRONMENT))
        if rank is not None:
            rank.keeper = line
            for each in list(self._hooks.lines.values()):  # the rank may have connected before its keeper
                self._claim(each)

    def _claim(self, line: Line) -> None:
        """Give the line to its rank, if that rank's keeper has already connected."""
        family = {line.pid, *ancestors(line.pid)} if line.role == "rank" else set()
        for rank in self.alive:
            if rank.pid in family:
                rank.line = line

    def rank_of(self, line: Line) -> Optional[Rank]:
        return next((rank for rank in self.ranks if rank.line is line), None)

    def note_exceptions(self, received: Iterable[tuple[Line, HookMessage]]) -> None:
        """Note the exceptions of ranks from their hooks' messages."""
        for line, message in received:
            rank = self.rank_of(line)
            if rank is not None and "raised" in message:
                rank.add_exception(rank_evidence.exception_from(message["raised"], handled=False))
                rank.in_flight = rank_evidence.in_flight_from(message["raised"])

    def take_ended(self) -> list[Rank]:
        """Return the ranks that have ended since the last call, and note the end of the launch command."""
        ended = [*self._unreported, *(rank for rank in self.alive if rank.look_for_end())]
        self._unreported = []
        if self.launch is not None and self.launch_exit is None and self.launch.poll() is not None:
            code = self.launch.returncode
            self.launch_exit = Exited(time.time(), code if code >= 0 else None, -code if code < 0 else None)
        for rank in ended:  # if the rank is the launch command, that may be known only after it was reaped
            if self.launch is not None and self.launch.pid == rank.pid and self.launch.returncode is not None:
                rank.learn_exit(self.launch.returncode)
        if self.launch is None and self._plan.keepers and self._all_have_ended():
            code = int(any(ranks.is_bad_end(rank.exit) for rank in self.ranks))
            self.launch_exit = Exited(time.time(), code, by_us=self.dismissed)
        return ended

    def _all_have_ended(self) -> bool:
        """Whether all ranks have come and ended, on a node whose ranks node 0 starts."""
        return not self.alive and (self.dismissed or len(self.ranks) == self._plan.nproc_per_node)

    def reap(self) -> None:
        """Reap the orphans that have become our children."""
        try:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            while child is not None and (self.launch is None or child.si_pid != self.launch.pid):
                os.waitpid(child.si_pid, 0)
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return

    def _add(self, member: Member, placeholder: bool = False) -> Optional[Rank]:
        """Add a rank and return it; None for a process that has ended, or a placeholder beside a rank."""
        if placeholder and self.alive:
            return None
        if any(rank.is_or_was(member.pid) for rank in self.ranks if not rank.alive):
            return None
        if not placeholder:
            self._drop([rank for rank in self.ranks if rank.placeholder])
            self._set_aside(self._predecessors(member))
        fresh = Rank(member.rank, member.local_rank, member.pid, placeholder)
        self._number(fresh, member)
        self.ranks = sorted([*self.ranks, fresh], key=lambda rank: (rank.number, rank.pid))
        self.logs.follow(fresh, self.launches_mpi)
        self._look_at_launcher(fresh.parent)
        return fresh

    def _look_at_launcher(self, pid: int) -> None:
        words = proc.words(pid)
        least = launch_options.least_nodes(words, proc.environment(pid))
        self.least_nodes = self.least_nodes if least is None else least

    def _predecessors(self, member: Member) -> list[Rank]:
        """Return the ended ranks whose place the new one takes: an attempt has each number only once."""
        stat = proc.stat(member.pid)
        return [
            rank
            for rank in self.ranks
            if self._has_ended(rank)
            and (
                rank.number == member.rank
                or (rank.local == member.local_rank and stat is not None and _was_below(rank, stat.parent))
            )
        ]

    def _is_past(self, pid: int) -> bool:
        """Whether it is a rank of an earlier attempt that its parent may not have reaped yet."""
        stat = proc.stat(pid)
        return pid in self._past and (stat is None or stat.started == self._past[pid])

    def _has_ended(self, rank: Rank) -> bool:
        if rank.alive and rank.look_for_end():
            self._unreported.append(rank)
        return not rank.alive

    def _set_aside(self, replaced: Sequence[Rank]) -> None:
        """If ranks are replaced, begin a new attempt without them and everything that ended beside them.

        Ranks of another launcher that is still there stay: it may run another world beside this one.
        """
        if not replaced:
            return
        self.attempt += 1
        self.logs.read()
        self._output_from = _size(self._place.launch_log)
        self.logs.launch.kept.clear()
        parents = {rank.parent for rank in replaced}
        past = [
            rank
            for rank in self.ranks
            if rank in replaced
            or (self._has_ended(rank) and (rank.parent in parents or proc.stat(rank.parent) is None))
        ]
        self._past.update({rank.pid: rank.started for rank in past})
        self._drop(past)
        for rank in past:
            self.candidates.forget(rank.pid)
            self.candidates.forget(rank.program)
        self.candidates.forget_ended()

    # --- what they print

    def finish_output(self) -> None:
        """Read all the output that is left, and from it the exit codes that only torchrun or mpirun got."""
        self.logs.catch_up(over=True)
        output = _text(self._place.launch_log, self._output_from)
        for number, (local_rank, pid, code) in program_output.torchrun_exits(output).items():
            rank = next((rank for rank in self.ranks if rank.pid == pid), None)
            if rank is None and not any(each.number == number for each in self.ranks):
                rank = Rank(number, local_rank, pid)
                self.ranks.append(rank)
            if rank is not None and (not rank.alive or rank.look_for_end()):
                rank.learn_exit(code)
        for index, code in program_output.mp_spawn_exits(output).items():
            its = [rank for rank in self.ranks if self.candidates.index_of(rank.program) == index]
            if len(its) == 1 and not its[0].alive:
                its[0].learn_exit(code)
        for number, code in program_output.mpirun_exits(output).items() if self.launches_mpi else ():
            for rank in self.ranks:
                if rank.number == number and (not rank.alive or rank.look_for_end()):
                    rank.learn_exit(code)
        self.ranks.sort(key=lambda rank: (rank.number, rank.pid))
        # This comes after the ranks that only torchrun has reported are added, because they have output too.
        self.logs.finish(self.ranks, lambda local: self.node * (self._plan.nproc_per_node or 0) + local)


def _was_below(rank: Rank, parent: int) -> bool:
    """Whether this parent has started the rank as well, or takes the place of one that is gone."""
    return rank.parent == parent or proc.stat(rank.parent) is None


def _text(path: str, begin: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - _REPORT))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
