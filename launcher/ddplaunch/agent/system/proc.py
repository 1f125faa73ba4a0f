"""Reads /proc, one process at a time. Returns nothing for a process that is gone or not ours."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import NamedTuple, Optional

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIDFD_GET_INFO = 0xC040FF0B  # of linux/pidfd.h, with the first version of its struct
_PIDFD_INFO = struct.Struct("=Q52xi")
_PIDFD_INFO_EXIT = 1 << 3


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used here."""

    command: str
    state: str
    parent: int
    cpu: float  # seconds of all its threads, user and system
    threads: int
    started: int  # clock ticks since boot; with the pid it names a process for good
    memory: int  # resident bytes
    exit_status: int  # as waitpid(2) would give it; true once the state is Z


class Usage(NamedTuple):
    """Counters of a process, to be compared between two moments."""

    cpu: float  # seconds
    read: int  # bytes through read()
    written: int  # bytes through write()
    wakeups: int  # voluntary context switches of its main thread
    fetched: int = 0  # bytes from a disk, by read() or because a page of a mapped file was touched

    def read_since(self, before: Usage) -> int:
        """Bytes. Mapped files come in without any read(), and what read() finds in the cache costs no disk:
        whichever has grown more. The larger total would hide reads behind libraries that were mapped first.
        """
        return max(self.read - before.read, self.fetched - before.fetched)


def stat(pid: int) -> Optional[Stat]:
    """None: there is no such process, or it is being torn down."""
    text = _text(pid, "stat")
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 50:
        return None
    return Stat(
        command=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        threads=int(fields[17]),
        started=int(fields[19]),
        memory=int(fields[21]) * _PAGE,
        exit_status=int(fields[49]),
    )


def exit_status(descriptor: int) -> Optional[int]:
    """Return the exit status of a pidfd's dead process, reaped or not; None before Linux 6.15."""
    info = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def usage(pid: int, known: Optional[Stat] = None) -> Optional[Usage]:
    """`known` spares a read where the caller has just made it."""
    found = known or stat(pid)
    if found is None:
        return None
    numbers = dict(_pairs(_text(pid, "io")))
    wakeups = dict(_pairs(_text(pid, "status"))).get("voluntary_ctxt_switches", 0)
    read, written, fetched = (numbers.get(name, 0) for name in ("rchar", "wchar", "read_bytes"))
    return Usage(found.cpu, read, written, wakeups, fetched)


def children(pid: int) -> list[int]:
    """Return the children of the main thread: launchers and data loaders fork there, and it is one read."""
    return [int(word) for word in _text(pid, f"task/{pid}/children").split()]


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which the process was executed."""
    pairs = (entry.partition("=") for entry in _text(pid, "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def wchan(pid: int) -> str:
    """The kernel function its main thread sleeps in; empty where the kernel does not tell."""
    name = _text(pid, "wchan").strip()
    return "" if name == "0" else name


def maps_library(pid: int, name: str) -> bool:
    """Whether it has loaded a library whose file begins with `name`, such as libmpi."""
    return f"/{name}." in _text(pid, "maps")


def command_line(pid: int) -> str:
    """Return the words of its command line, with spaces between them."""
    return _text(pid, "cmdline").replace("\0", " ").strip()


def output_files(pid: int) -> list[str]:
    """Regular files that are its standard output and standard error."""
    found: list[str] = []
    for descriptor in (1, 2):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if path not in found and os.path.isfile(path) and not path.startswith("/dev/"):
            found.append(path)
    return found


def socket_inodes(pid: int) -> set[int]:
    """Return the inodes of all sockets that it holds."""
    found: set[int] = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def _pairs(text: str) -> list[tuple[str, int]]:
    """Return the pairs in "name: number" lines; other lines are left out."""
    found = []
    for line in text.splitlines():
        name, _, value = line.partition(":")
        value = value.strip()
        if value.isdigit():
            found.append((name, int(value)))
    return found


def _text(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
