"""Ports of this machine: finds a free one, holds it, and names the process that has it."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from dataclasses import dataclass
from typing import Any, Optional

from ddplaunch.agent.contract import Env
from ddplaunch.agent.system import proc, tcp

_LOWEST, _HIGHEST = 10000, 32767
"""Above what services use, below what Linux hands out to outgoing connections by default."""
EPHEMERAL = (32768, 60999)
"""What Linux hands out by default, where we cannot ask."""
_TRIES = 200


@dataclass(frozen=True)
class Holder:
    """Who holds a port, or a GPU. `pid` is None when the process is another user's or another container's."""

    user_id: int
    pid: Optional[int] = None
    command: str = ""
    job: str = ""

    @property
    def text(self) -> str:
        """'pid 812 (python serve.py, user bob, Slurm job 771)'."""
        user = f"user {_user(self.user_id)}"
        if self.pid is None:
            return f"a process of {user}"
        return f"pid {self.pid} ({', '.join(filter(None, (self.command[:80], user, self.job)))})"

    def facts(self) -> dict[str, Any]:
        return {"pid": self.pid, "user": _user(self.user_id), "command": self.command, "job": self.job}


def listen(host: Optional[str], port: int) -> socket.socket:
    """A socket listening there (None: on all addresses, of both families), as the trainer's store binds.

    SO_REUSEADDR, so that connections of a moment ago do not count; a listener does. Raises OSError.
    """
    if host is None and socket.has_dualstack_ipv6():
        try:
            return _listen(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    return _listen(family, host or "0.0.0.0", port)


def _listen(family: int, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def first_free(host: Optional[str], job: str, attempt: int, key: bytes, purpose: str) -> socket.socket:
    """Listens on the first port of the job's own sequence that is free. Raises OSError when none is."""
    failure = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    for port in sequence(f"{job} {attempt} {purpose}".encode() + key, ephemeral_range()):
        try:
            return listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            failure = error
    raise failure


def sequence(seed: bytes, avoid: tuple[int, int]) -> list[int]:
    """Ports to try, the same for the same seed, none of them inside `avoid` (inclusive), unless all are.

    Large machines are often set up so that the kernel hands out all ports; a job must start there too.
    """
    digests = (hashlib.sha256(b"%s %d" % (seed, index)).digest() for index in range(_TRIES))
    tried = [_LOWEST + int.from_bytes(each[:4], "big") % (_HIGHEST - _LOWEST + 1) for each in digests]
    return [port for port in tried if not avoid[0] <= port <= avoid[1]] or tried


def ephemeral_range() -> tuple[int, int]:
    """Return the first and last port that the kernel takes for outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = file.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return EPHEMERAL


def is_reserved(port: int) -> bool:
    """Whether the kernel leaves it out of what it hands out, as its administrator has asked."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_reserved_ports", encoding="ascii") as file:
            ranges = [entry.partition("-") for entry in file.read().strip().split(",") if entry]
        return any(int(low) <= port <= int(high or low) for low, _, high in ranges)
    except (OSError, ValueError):
        return False


def number(listener: socket.socket) -> int:
    """The port it listens on."""
    return int(listener.getsockname()[1])


def holder(port: int) -> Optional[Holder]:
    """Who holds `port` here: a listener if there is one. None: nobody that can be seen."""
    there = [each for each in tcp.table() if each.port == port]
    for each in sorted(there, key=lambda each: each.state != tcp.LISTEN):
        if each.state == tcp.LISTEN or each.inode:
            pid = _owner(each.inode)
            return Holder(each.user_id) if pid is None else _described(each.user_id, pid)
    return None


def process(pid: int) -> Optional[Holder]:
    """Who that is; None when it is not to be seen from here."""
    try:
        return _described(os.stat(f"/proc/{pid}").st_uid, pid)
    except OSError:
        return None


def _described(user_id: int, pid: int) -> Holder:
    return Holder(user_id, pid, proc.command_line(pid), _job(proc.environment(pid)))


def _owner(inode: int) -> Optional[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and inode in proc.socket_inodes(int(name)):
            return int(name)
    return None


def _job(environment: dict[str, str]) -> str:
    if environment.get(Env.JOB):
        return f"ddplaunch job {environment[Env.JOB]}"
    return f"Slurm job {environment['SLURM_JOB_ID']}" if environment.get("SLURM_JOB_ID") else ""


def _user(user_id: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
