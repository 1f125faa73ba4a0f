"""Names the process that holds a port or a GPU, and the job to which it belongs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ddplaunch.agent.contract import Env
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.system import ports, proc


@dataclass(frozen=True)
class Holder:
    """A process that holds a port or a GPU. `pid` is None if it is another user's or container's."""

    user_id: int
    pid: Optional[int] = None
    command: str = ""
    job: str = ""  # for the user: "Slurm job 771"

    @property
    def text(self) -> str:
        """Return text such as 'pid 812 (python serve.py, user bob, Slurm job 771)'."""
        user = f"user {_user(self.user_id)}"
        if self.pid is None:
            return f"a process of {user}"
        return f"pid {self.pid} ({', '.join(filter(None, (self.command[:80], user, self.job)))})"

    def facts(self) -> dict[str, Any]:
        return {"pid": self.pid, "user": _user(self.user_id), "command": self.command, "job": self.job}


def holder_of_port(port: int) -> Optional[Holder]:
    """Return the process that holds `port`, a listener if there is one. None: no visible process does."""
    there = [each for each in ports.table() if each.port == port]
    for each in sorted(there, key=lambda each: each.state != ports.LISTEN):
        if each.state == ports.LISTEN or each.inode:
            pid = _owner(each.inode)
            return Holder(each.user_id) if pid is None else _described(each.user_id, pid)
    return None


def holder_of_process(pid: int) -> Optional[Holder]:
    """Return the process with its user and job; None if it cannot be seen from here."""
    try:
        return _described(os.stat(f"/proc/{pid}").st_uid, pid)
    except OSError:
        return None


def _described(user_id: int, pid: int) -> Holder:
    return Holder(user_id, pid, proc.command_line(pid), job_of(proc.environment(pid)))


def _owner(inode: int) -> Optional[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and inode in proc.socket_inodes(int(name)):
            return int(name)
    return None


def job_of(environment: Mapping[str, str]) -> str:
    """Return the job of a process with this environment; "" if there is none."""
    if environment.get(Env.JOB):
        return f"ddplaunch job {environment[Env.JOB]}"
    return slurm.job_name(environment)


def _user(user_id: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
