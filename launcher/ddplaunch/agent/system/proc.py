"""Reads /proc, one process at a time. Values are empty for a process that is gone or not ours."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import NamedTuple, Optional, Union

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
_PRIVATE, _WAITS = 128, (0, 9)  # of linux/futex.h: a flag, and the commands WAIT and WAIT_BITSET
_MOST_LINKS = 40
_LAST_CPU = 36  # among the words of /proc/PID/stat after the command
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
    exit_status: int  # as of waitpid(2); valid once the state is Z


class Usage(NamedTuple):
    """Counters of a process, to be compared between two moments."""

    cpu: float  # seconds
    read: int  # bytes through read()
    written: int  # bytes through write()
    wakeups: int  # voluntary context switches of its main thread
    fetched: int = 0  # bytes from a disk, by read() or because a page of a mapped file was touched

    def read_since(self, before: Usage) -> int:
        """Return the bytes read since `before`: by read() or from a disk, whichever has grown more.

        Mapped files need no read(), and cached files no disk. A sum of the two would hide reads behind
        libraries that were mapped before.
        """
        return max(self.read - before.read, self.fetched - before.fetched)


class MainIo(NamedTuple):
    """The bytes that a main thread has read and written so far, counting files, pipes and sockets alike."""

    read: int
    written: int


def stat(pid: int) -> Optional[Stat]:
    """Return fields of /proc/PID/stat; None if there is no such process, or if it is just being torn down."""
    return _stat(text(pid, "stat"))


def is_asleep(pid: int) -> bool:
    """Whether its main thread sleeps."""
    process = stat(pid)
    return process is not None and process.state == "S"


def thread_cpu(pid: int, tid: int) -> float:
    """Return the CPU seconds of a thread; 0 if it is gone."""
    thread = _stat(text(pid, f"task/{tid}/stat"))
    return thread.cpu if thread is not None else 0.0


def _stat(line: str) -> Optional[Stat]:
    head, _, tail = line.rpartition(")")
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
    """Return the exit status of a pidfd's dead process, whether reaped or not; None before Linux 6.15."""
    info = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return int(status) if mask & _PIDFD_INFO_EXIT else None


def usage(pid: int) -> Optional[Usage]:
    """Return the counters of a process; None if it is gone."""
    process = stat(pid)
    if process is None:
        return None
    numbers = dict(_pairs(text(pid, "io")))
    wakeups = dict(_pairs(text(pid, "status"))).get("voluntary_ctxt_switches", 0)
    read, written, fetched = (numbers.get(name, 0) for name in ("rchar", "wchar", "read_bytes"))
    return Usage(process.cpu, read, written, wakeups, fetched)


def main_io(pid: int) -> Optional[MainIo]:
    """Return the bytes of a process's main thread; None if they cannot be read."""
    numbers = dict(_pairs(text(pid, f"task/{pid}/io")))
    return MainIo(numbers["rchar"], numbers["wchar"]) if {"rchar", "wchar"} <= numbers.keys() else None


def wanted(pid: int) -> Optional[float]:
    """Return the seconds for which a main thread had a CPU or waited for one; None: it is not known."""
    words = text(pid, "schedstat").split()
    return (int(words[0]) + int(words[1])) / 1e9 if len(words) > 1 else None


def cpu_times() -> dict[int, float]:
    """Return the CPU seconds of every process that can be seen here."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: process.cpu for pid in pids if (process := stat(pid)) is not None}


def children(pid: int) -> list[int]:
    """Return the children of the main thread, where launchers and data loaders fork. One read."""
    return [int(word) for word in text(pid, f"task/{pid}/children").split()]


def network(pid: int) -> str:
    """Return the name of its network namespace; "" if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def thread_names(pid: int) -> dict[int, str]:
    """Return the names of its threads by their numbers; none if it has ended."""
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return {}
    return {tid: text(pid, f"task/{tid}/comm").strip() for tid in tids}


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which the process was executed."""
    pairs = (entry.partition("=") for entry in text(pid, "environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def wchan(pid: int) -> str:
    """Return the kernel function in which its main thread sleeps; "" if it cannot be read."""
    name = text(pid, "wchan").strip()
    return "" if name == "0" else name


def program(pid: int) -> str:
    """Return the file name of the process's executable; "" if it cannot be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def off_cpu_for(pid: int, tid: int = 0) -> Optional[float]:
    """Return the seconds since a thread last had a CPU; None if the kernel does not tell.

    `tid`: 0 for the main thread.

    Each CPU has its own clock, without the time that the host or interrupts have taken. So we go to that
    thread's CPU to read it.
    """
    task = f"{pid}/task/{tid or pid}"
    words = text(task, "stat").rpartition(")")[2].split()
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {int(words[_LAST_CPU])})
        now = _ran_at("thread-self")
    except (OSError, IndexError):
        return None
    finally:
        os.sched_setaffinity(0, allowed)
    return between(_ran_at(task), now)


def between(ran: Optional[float], now: Optional[float]) -> Optional[float]:
    """Return the seconds since a thread `ran`, by the clock of its CPU; None if either is not known.

    0 is no time: Linux forgets it of a thread that it has just moved to another CPU, where it is about to run
    (migrate_task_rq_fair in kernel/sched/fair.c).
    """
    if ran is None or now is None:
        return None
    return max(0.0, now - ran) if ran else 0.0


def _ran_at(task: str) -> Optional[float]:
    """Return when a thread last had a CPU, in seconds by the scheduler's clock."""
    for line in text(task, "sched").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "se.exec_start":
            return float(value) / 1000
    return None


class ThreadWait(NamedTuple):
    """The futex for which a thread waits."""

    futex: str  # its address
    timed: bool  # it gives up or looks again after a while
    own: bool  # only threads of its own process can wake it
    switches: int  # voluntary context switches of the thread so far


def thread_wait(pid: int, tid: int) -> Optional[ThreadWait]:
    """Return what a thread waits for; None: it waits for no futex, or this cannot be read."""
    call = text(pid, f"task/{tid}/syscall").split()
    if len(call) < 7 or call[0] != str(_FUTEX):
        return None
    operation = int(call[2], 16)
    switches = dict(_pairs(text(pid, f"task/{tid}/status"))).get("voluntary_ctxt_switches", 0)
    if operation & 127 not in _WAITS:
        return None
    return ThreadWait(call[1], int(call[4], 16) != 0, bool(operation & _PRIVATE), switches)


def maps_library(pid: int, name: str) -> bool:
    """Whether the process has loaded a library whose file name begins with `name`, such as libmpi."""
    return f"/{name}." in text(pid, "maps")


def path_from_here(pid: int, path: str) -> str:
    """Return where a file of the process is found from here: it may see other mounts, as in a container.

    A relative path starts in the process's working directory.
    """
    theirs, ours = (_link(f"{each}/ns/mnt") for each in (pid, "self"))
    if theirs in ("", ours):
        return os.path.join(f"/proc/{pid}/cwd", path)
    root, done, left = f"/proc/{pid}/root", "", os.path.join(_link(f"{pid}/cwd"), path).split("/")
    links = _MOST_LINKS
    while left:
        name = left.pop(0)
        target = _link(f"{pid}/root{done}/{name}") if links and name not in ("", "..") else ""
        if target:  # from here the kernel would lead an absolute one to our own files
            links -= 1
            done, left = "" if target.startswith("/") else done, [*target.split("/"), *left]
        elif name == "..":
            done = os.path.dirname(done)
        elif name not in ("", "."):
            done = f"{done}/{name}"
    return root + done


class SystemCall(NamedTuple):
    """What a main thread is in, by asm/unistd.h, and its six arguments."""

    number: int
    arguments: list[int]


def system_call(pid: int) -> Optional[SystemCall]:
    """Return the system call that a main thread is in; None if it is in none, or that may not be read.

    In none, it runs, or has touched a page of a mapped file.
    """
    words = text(pid, "syscall").split()
    if len(words) < 7 or not words[0].isdigit():
        return None
    return SystemCall(int(words[0]), [int(word, 16) for word in words[1:7]])


def link(pid: int, name: str) -> str:
    """Return where a link below /proc/PID leads; "" if it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def descriptors(pid: int) -> list[str]:
    """Return the numbers of a process's open files; none if they cannot be read."""
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def memory(pid: int, address: int, size: int) -> bytes:
    """Return at most `size` bytes of a process's memory; none if they cannot be read."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size)
    except (OSError, ValueError, OverflowError):
        return b""


def words(pid: int) -> list[str]:
    """Return the words of the process's command line; one empty word where there are none."""
    return text(pid, "cmdline").rstrip("\0").split("\0")


def command_line(pid: int) -> str:
    """Return the process's command line, with spaces between the words."""
    return " ".join(words(pid)).strip()


def output_files(pid: int) -> list[str]:
    """Return the regular files that are its standard output and standard error."""
    paths: list[str] = []
    for descriptor in (1, 2):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if path not in paths and os.path.isfile(path) and not path.startswith("/dev/"):
            paths.append(path)
    return paths


def socket_inodes(pid: int) -> set[int]:
    """Return the inodes of all its sockets."""
    inodes: set[int] = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return inodes
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return inodes


def _link(name: str) -> str:
    try:
        return os.readlink(f"/proc/{name}")
    except OSError:
        return ""


def _pairs(lines: str) -> list[tuple[str, int]]:
    """Return the pairs in "name: number" lines; other lines are left out."""
    pairs = []
    for line in lines.splitlines():
        name, _, value = line.partition(":")
        value = value.strip()
        if value.isdigit():
            pairs.append((name, int(value)))
    return pairs


def text(pid: Union[int, str], name: str) -> str:
    """Return what /proc/PID/NAME says; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
