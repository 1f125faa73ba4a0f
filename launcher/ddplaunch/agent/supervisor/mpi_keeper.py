"""The keeper of one MPI rank: the process that mpirun or srun starts in the rank's place, on any node.

MPI's launcher starts the ranks of all nodes and knows no supervisor. The keeper connects its rank with the
supervisor of its node. It reports the rank, gives it the environment and the log files that the supervisor's
own children would have, and does not reap it until the supervisor has seen its end. As the rank's parent it
always gets the exit status.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Optional

from ddplaunch.agent.contract import Exit, Files, JobPlan
from ddplaunch.agent.supervisor import launch, launch_options
from ddplaunch.agent.supervisor.launch import LaunchContext, LaunchError
from ddplaunch.agent.system import processes, signals
from ddplaunch.agent.text.printable import error_text

_SUPERVISOR = 30.0
"""Seconds to wait for this node's supervisor: node 0 may launch before that supervisor has started."""
_LINGER = 5.0
"""Seconds that the supervisor has to see a dead rank."""
_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a rank whose supervisor is gone."""
_NEXT = 0.02
"""Seconds within which a process that kills the whole node kills us, too, after the rank."""
_POLL = 0.1


def main(plan: JobPlan, folder: str, words: list[str]) -> int:
    """Run `words` as the rank that our MPI variables name. Returns its exit code, or 128+n for a signal."""
    try:
        keeper = MpiKeeper(plan, folder)
        return keeper.run(words)
    except (LaunchError, OSError, ValueError) as error:
        sys.stderr.write(error_text(error))
        return Exit.UNUSABLE


class MpiKeeper:
    def __init__(self, plan: JobPlan, folder: str) -> None:
        numbers = launch_options.mpi_numbers(os.environ)
        if numbers is None:
            raise LaunchError(
                "this process has no MPI rank", "start it by mpirun, or by srun with a PMI: --mpi=pmix"
            )
        self.plan = plan
        self.rank = numbers[0]
        per_node = plan.nproc_per_node or 1
        self.place, facts = _supervisor(folder, self.rank // per_node)
        # mpirun numbers local ranks by machine, and all nodes of a local job are on one machine.
        self.local = numbers[1] if len(_nodes(folder)) == 1 else self.rank % per_node
        self.attempt = int(facts["attempt"])
        self.node = int(facts["node"])
        self.hook = str(facts["hook"])
        self.line: Optional[socket.socket] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.connect("\0" + self.hook.partition(",")[0])
        self.child: Optional[subprocess.Popen[bytes]] = None

    def run(self, words: list[str]) -> int:
        for number in processes.STOPPING:
            signal.signal(number, lambda received, _: self._end_rank(received))
        for other in signals.REQUESTS - {*processes.STOPPING}:
            if signal.getsignal(other) is not signal.SIG_IGN:
                signal.signal(other, lambda received, _: self._pass_on(received))
        self.child = self._start(words)
        self._send(
            {
                "hello": "keeper",
                "rank": str(self.rank),
                "local_rank": str(self.local),
                "child": self.child.pid,
            }
        )
        code = self._watch(self.child)
        return code if code >= 0 else 128 - code

    def _start(self, words: list[str]) -> subprocess.Popen[bytes]:
        agreed = self.place.agreed()
        env = launch.launch_environment(self.plan, self.node, self.attempt, agreed, self.place, os.environ)
        env = launch.with_hook(env, self.place, self.hook)
        per_node = self.plan.nproc_per_node or 1
        # torch.distributed finds its ranks from these, as under torchrun.
        env.update(
            RANK=str(self.rank),
            LOCAL_RANK=str(self.local),
            WORLD_SIZE=str(self.plan.nodes * per_node),
            LOCAL_WORLD_SIZE=str(per_node),
        )
        if agreed is not None:
            env.update(MASTER_ADDR=agreed.master_addr, MASTER_PORT=str(agreed.master_port))
        program = shutil.which(words[0], path=env.get("PATH", os.defpath))
        workdir = self.place.workdir(self.plan)
        if program is None and not os.path.exists(os.path.join(workdir or "", words[0])):
            raise LaunchError(
                f"{words[0]} is not on PATH on {socket.gethostname()}",
                "name it by its full path in `command`",
            )
        us = os.getpid()

        def tie() -> None:
            processes.die_with_parent(us, signal.SIGKILL)

        folder = os.path.join(self.place.ranks, str(self.rank))
        os.makedirs(folder, exist_ok=True)
        with (
            open(os.path.join(folder, "stdout.log"), "ab") as out,
            open(os.path.join(folder, "stderr.log"), "ab") as err,
        ):
            # MPI's own descriptors, such as PMI_FD, are passed on to the rank.
            return subprocess.Popen(
                words,
                executable=program,
                env=env,
                cwd=workdir,
                stdout=out,
                stderr=err,
                close_fds=False,
                preexec_fn=tie,
            )

    # --- until it ends

    def _watch(self, child: subprocess.Popen[bytes]) -> int:
        """Return the exit code in Popen's form. A dead rank stays a zombie until its end has been seen."""
        descriptor = processes.open_pid(child.pid)
        kill_at: Optional[float] = None
        while not _ended(child.pid):
            waiting: list[Any] = [each for each in (descriptor, self.line) if each is not None]
            patience = _POLL if descriptor is None or kill_at is not None else None
            readable = select.select(waiting, [], [], patience)[0]
            if self.line in readable and not self._receive():
                self._end_rank(signal.SIGTERM)  # no supervisor watches this rank any longer
                kill_at = time.monotonic() + _GRACE
            if kill_at is not None and time.monotonic() > kill_at:
                child.kill()
        if _killed(child.pid):
            time.sleep(_NEXT)  # if the whole node is killed, no message may blame the rank
        self._send({"ending": time.time()})
        until = time.monotonic() + _LINGER
        while self.line is not None and time.monotonic() < until:
            if select.select([self.line], [], [], _POLL)[0]:
                break
        return child.wait()

    def _end_rank(self, number: int) -> None:
        """Pass a signal on to the rank: from MPI's launcher after another's end, or from the scheduler."""
        self._send({"signal": number})
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, number)

    def _send(self, message: dict[str, Any]) -> None:
        if self.line is not None:
            with contextlib.suppress(OSError):
                self.line.send(json.dumps(message).encode() + b"\n")

    def _receive(self) -> bool:
        """Read a message. Returns False if the supervisor is gone."""
        assert self.line is not None
        with contextlib.suppress(OSError):
            if self.line.recv(4096):
                return True
        self.line = None
        return False


def _supervisor(folder: str, number: int) -> tuple[LaunchContext, dict[str, Any]]:
    """Return the files of node `number`, and the content of keeper.json. Raises LaunchError."""
    pattern = os.path.join(glob.escape(folder), Files.NODE.format(node="*"), "keeper.json")
    deadline = time.monotonic() + _SUPERVISOR
    while time.monotonic() < deadline:
        paths = {_node(path): path for path in glob.glob(pattern)}
        path = paths.get(number) or (next(iter(paths.values())) if _alone(folder, paths) else None)
        if path is not None:
            with open(path, encoding="utf-8") as file:
                facts: dict[str, Any] = json.load(file)
            return LaunchContext(folder, int(facts["node"])), facts
        time.sleep(_POLL)
    raise LaunchError(
        f"no supervisor on {socket.gethostname()} after {_SUPERVISOR:.0f} s: there is no {pattern}",
        "MPI has started a rank on a machine that is none of the job's nodes, or in another order",
    )


def _node(path: str) -> int:
    return int(os.path.basename(os.path.dirname(path)).rpartition("-")[2])


def _alone(folder: str, paths: dict[int, str]) -> bool:
    """Whether the one supervisor that is there is the only one on this machine."""
    return len(paths) == len(_nodes(folder)) == 1


def _nodes(folder: str) -> list[str]:
    """Return the folders of the nodes that run on this machine."""
    return glob.glob(os.path.join(glob.escape(folder), Files.NODE.format(node="*")))


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _killed(pid: int) -> bool:
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return end is not None and end.si_code == os.CLD_KILLED and end.si_status == signal.SIGKILL
