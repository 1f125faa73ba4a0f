"""Finds out what a process or a thread waits for in the kernel: a file, a lock, or the GIL. It reads /proc.

The collector asks only about suspects. `syscall` has the number and the arguments of what a process calls;
`stack` has the kernel's functions, but only for root. If neither may be read, there is the function in
`wchan` and, for a lock, the kernel's table of locks. The file itself is never touched.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Any, Optional

from ddplaunch.agent.contract import Wait
from ddplaunch.agent.system import files, proc

_FUNCTION = re.compile(r"\] ([\w.]+)\+0x")
_FUNCTIONS_KEPT = 12
_LONGEST = 4096
"""Bytes of a path: PATH_MAX."""

_DESCRIPTOR, _PATH, _AT = "a descriptor", "a path", "a folder's descriptor and a path"
"""First arguments of a system call."""
_CALLS = {
    "x86_64": {
        _DESCRIPTOR: (0, 1, 5, 8, 17, 18, 19, 20, 72, 73, 74, 75, 77, 78, 217, 285, 295, 296, 326),
        _PATH: (2, 4, 6, 21, 80, 82, 83, 84, 87, 89, 90, 137),
        _AT: (257, 258, 262, 263, 264, 267, 269, 332, 437, 439),
    },
    "aarch64": {
        _DESCRIPTOR: (25, 32, 46, 47, 61, 62, 63, 64, 65, 66, 67, 68, 80, 82, 83, 285),
        _PATH: (43, 49),
        _AT: (34, 35, 38, 48, 56, 78, 79, 291, 437, 439),
    },
}
"""Numbers (asm/unistd.h) of calls that look up, read, write, lock or sync a file."""
_LOCK = re.compile(r"(\d+): +(?:(->) *)?\w+ +\w+ +\w+ +(-?\d+) +\w+:\w+:(\d+) ")
"""A line of /proc/locks, with its inode. A process that waits comes after the holder, with the same
number."""
_INODE = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
_NOWHERE = ("", "", "")


def read_wait(pid: int, state: str, wchan: str) -> Optional[Wait]:
    """Return what the main thread of a process waits for; None while it runs, or if it does not wait for a
    file.
    """
    if state not in ("S", "D"):
        return None
    call = proc.system_call(pid)
    holder, inode = _lock(pid) if state == "S" else (0, "")
    path = _path_of(pid, call) if call is not None else _open_file(pid, inode)
    is_file = path.startswith("/")
    if state == "S" and not is_file:
        return None
    functions = _FUNCTION.findall(proc.text(pid, "stack")) or ([wchan] if wchan else [])
    return Wait(
        functions[:_FUNCTIONS_KEPT],
        path if is_file else "",
        *(_mount_of(pid, path) if is_file else _NOWHERE),
        holder,
        proc.command_line(holder)[:200] if holder > 0 else "",
    )


def polled_lock(pid: int, polls: Any, ranks: Iterable[int]) -> Optional[Wait]:
    """Return the wait of a process that tries for the lock on a file again and again; None if it does not.

    `polls`: the file, and whether the lock is held by one of `ranks` that has it open; otherwise that rank
    has locked it.
    """
    if not polls:
        return None
    path, openers = str(polls[0]), {*ranks} if polls[1] else set()
    places = {each: _places(each, path) for each in {*openers, *(int(lock[2]) for lock in _locks())} - {pid}}
    same = [each for each in places if places[each] and proc.link(each, "ns/mnt") == proc.link(pid, "ns/mnt")]
    holders = [each for each in same if each in openers or any("\nlock:" in text for text in places[each])]
    holder = min(holders, default=0)
    return Wait([], path, *_mount_of(pid, path), holder, proc.command_line(holder)[:200] if holder else "")


def _places(pid: int, path: str) -> list[str]:
    """Return what the kernel says about each of its descriptors for this file."""
    return [
        proc.text(pid, f"fdinfo/{each}")
        for each in proc.descriptors(pid)
        if proc.link(pid, f"fd/{each}") == path
    ]


def _path_of(pid: int, call: proc.SystemCall) -> str:
    """Return the path of the file that the call is about; empty if it is not about a file."""
    numbers = _CALLS.get(os.uname().machine, {})
    kind = next((kind for kind, calls in numbers.items() if call.number in calls), "")
    if kind in ("", _DESCRIPTOR):
        return proc.link(pid, f"fd/{call.arguments[0]}") if kind else ""
    path = _string(pid, call.arguments[kind == _AT])
    if not path or path.startswith("/"):
        return path
    folder = call.arguments[0] & 0xFFFFFFFF
    is_open = kind == _AT and folder < 1 << 31  # AT_FDCWD is -100
    return os.path.join(proc.link(pid, f"fd/{folder}" if is_open else "cwd"), path)


def _string(pid: int, address: int) -> str:
    return proc.memory(pid, address, _LONGEST).partition(b"\0")[0].decode(errors="replace")


def _mount_of(pid: int, path: str) -> tuple[str, str, str]:
    """Return where the file's file system is mounted, its type, and its source."""
    mount = files.mount_of(proc.text(pid, "mountinfo"), path)
    return mount.point, mount.kind, mount.source


def _open_file(pid: int, inode: str) -> str:
    """Return the path of its open file; "" if the kernel does not tell, as before 5.14."""
    descriptors = proc.descriptors(pid) if inode else []
    places = (each for each in descriptors if inode in _INODE.findall(proc.text(pid, f"fdinfo/{each}")))
    return next(
        (path for path in (proc.link(pid, f"fd/{each}") for each in places) if path.startswith("/")), ""
    )


def _lock(pid: int) -> tuple[int, str]:
    """Return who holds the lock for which this process waits, and the lock's inode. -1: unknown; 0:
    nobody.
    """
    holders: dict[str, int] = {}
    for number, waits, owner, inode in _locks():
        if not waits:
            holders[number] = int(owner)
        elif int(owner) == pid:
            return holders.get(number) or -1, str(inode)
    return 0, ""


def _locks() -> list[tuple[str, ...]]:
    """Return the number, the mark of a wait, the owner and the inode of each lock."""
    lines = proc.text(".", "locks").splitlines()
    return [line.groups() for line in map(_LOCK.match, lines) if line]


# --- threads, by several looks at their futexes

_LOOKS_APART = 0.1
"""Seconds between the first and the last look, at least."""
_LONGEST_LOOKS = 0.5
"""Seconds for threads that may be asking for the GIL: a look may find them awake, mostly on a busy
machine."""
_WAKEUPS_OF_GIL = 2
"""Wake-ups between two looks, at least, of a thread that asks for the GIL: Python wakes up every 5 ms, less
often on a busy machine. A thread that waits for a lock does not wake up."""

Thread = tuple[int, int]
"""The number of a process, and of one of its threads."""


class ThreadWaits:
    """Tells, from several looks, which threads wait for a lock of their process and which ask for the GIL.

    It looks at the futexes for which the threads in `threads` and `silent` wait: now, and at each
    `look_again`. The silent ones are threads of hooks that have not answered: they may be asking for the GIL.
    """

    def __init__(self, threads: Iterable[Thread], silent: Iterable[Thread] = ()) -> None:
        self._at = time.monotonic()
        self._again_at: Optional[float] = None
        self._first = {each: wait for each in threads if (wait := proc.thread_wait(*each)) is not None}
        self._last: dict[Thread, proc.ThreadWait] = {}
        self._undecided = set(silent)
        self._silent: dict[Thread, proc.ThreadWait] = {}
        self._asking: set[Thread] = set()
        self._look_at_silent()

    @property
    def is_open(self) -> bool:
        """Whether another look can tell more. The second one does, however late it comes."""
        if self._again_at is None:
            return bool(self._first or self._undecided)
        now = time.monotonic()
        return now - self._at < _LOOKS_APART or (
            bool(self._undecided) and now - self._again_at < _LONGEST_LOOKS
        )

    def look_again(self) -> None:
        """Look once more."""
        if self._again_at is None:
            self._again_at = time.monotonic()
        looks = {each: proc.thread_wait(*each) for each in self._first}
        self._last = {each: wait for each, wait in looks.items() if wait is not None}
        self._look_at_silent()

    def is_on_lock(self, thread: Thread) -> bool:
        """Whether it has not run between the looks, and only its own process can ever wake it up."""
        wait = self._last.get(thread)
        return wait is not None and wait == self._first[thread] and wait.own and not wait.timed

    def asks_for_gil(self, thread: Thread) -> bool:
        """Whether it waits a little, looks, and waits again, as a thread does that wants the GIL."""
        return thread in self._asking

    def _look_at_silent(self) -> None:
        for each in sorted(self._undecided):
            wait = proc.thread_wait(*each)
            if wait is None or not (wait.own and wait.timed):
                continue
            first = self._silent.setdefault(each, wait)
            if first.futex != wait.futex:
                self._silent[each] = wait
            elif wait.switches - first.switches >= _WAKEUPS_OF_GIL:
                self._asking.add(each)
        self._undecided -= self._asking
