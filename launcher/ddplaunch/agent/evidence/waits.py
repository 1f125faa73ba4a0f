"""Finds out for which file a process waits in the kernel, from /proc. Asked of suspects alone.

`syscall` has the number and the arguments of what it calls, `stack` the kernel's functions, for root alone.
Where neither may be read, there is the function in `wchan`, and for a lock the kernel's table of locks. The
file itself is never touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from ddplaunch.agent.contract import Wait
from ddplaunch.agent.system import mounts, proc

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
"""A line of /proc/locks, with its inode: who waits comes after the holder, with the same number."""
_INODE = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
_NOWHERE = ("", "", "")


class _Call(NamedTuple):
    number: int
    arguments: list[int]


def read(pid: int, state: str, wchan: str) -> Optional[Wait]:
    """Return what the main thread of a process waits for; None while it runs, or sleeps for no file."""
    if state not in ("S", "D"):
        return None
    call = _call(pid)
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


def polled(pid: int, polls: Any, ranks: Iterable[int]) -> Optional[Wait]:
    """Return the wait of a process that tries again and again for the lock on a file; None where it does not.

    `polls`: the file, and whether one of `ranks` that has it open holds the lock; else it has locked it.
    """
    if not polls:
        return None
    path, openers = str(polls[0]), {*ranks} if polls[1] else set()
    places = {each: _places(each, path) for each in {*openers, *(int(lock[2]) for lock in _locks())} - {pid}}
    same = [each for each in places if places[each] and _link(each, "ns/mnt") == _link(pid, "ns/mnt")]
    holders = [each for each in same if each in openers or any("\nlock:" in text for text in places[each])]
    holder = min(holders, default=0)
    return Wait([], path, *_mount_of(pid, path), holder, proc.command_line(holder)[:200] if holder else "")


def _places(pid: int, path: str) -> list[str]:
    """Return what the kernel says of each of its descriptors of this file."""
    return [
        proc.text(pid, f"fdinfo/{each}") for each in _descriptors(pid) if _link(pid, f"fd/{each}") == path
    ]


def _call(pid: int) -> Optional[_Call]:
    words = proc.text(pid, "syscall").split()
    if len(words) < 7 or not words[0].isdigit():
        return None  # it may not be read, or the process is in none: it touched a page of a mapped file
    return _Call(int(words[0]), [int(word, 16) for word in words[1:7]])


def _path_of(pid: int, call: _Call) -> str:
    """Return the path of the file that the call is about; empty when it is about none."""
    numbers = _CALLS.get(os.uname().machine, {})
    kind = next((kind for kind, calls in numbers.items() if call.number in calls), "")
    if kind in ("", _DESCRIPTOR):
        return _link(pid, f"fd/{call.arguments[0]}") if kind else ""
    path = _string(pid, call.arguments[kind == _AT])
    if not path or path.startswith("/"):
        return path
    folder = call.arguments[0] & 0xFFFFFFFF
    is_open = kind == _AT and folder < 1 << 31  # AT_FDCWD is -100
    return os.path.join(_link(pid, f"fd/{folder}" if is_open else "cwd"), path)


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _string(pid: int, address: int) -> str:
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(_LONGEST).partition(b"\0")[0].decode(errors="replace")
    except (OSError, ValueError, OverflowError):
        return ""


def _mount_of(pid: int, path: str) -> tuple[str, str, str]:
    """Return where the file's file system is mounted, its type, and its source."""
    mount = mounts.nearest(proc.text(pid, "mountinfo"), path)
    return mount.point, mount.kind, mount.source


def _open_file(pid: int, inode: str) -> str:
    """Return the path of its open file; "" where the kernel does not tell, before 5.14."""
    descriptors = _descriptors(pid) if inode else []
    places = (each for each in descriptors if inode in _INODE.findall(proc.text(pid, f"fdinfo/{each}")))
    return next((path for path in (_link(pid, f"fd/{each}") for each in places) if path.startswith("/")), "")


def _lock(pid: int) -> tuple[int, str]:
    """Return who holds the lock for which this process waits, and its inode. -1: unknown; 0: none."""
    holders: dict[str, int] = {}
    for number, waits, owner, inode in _locks():
        if not waits:
            holders[number] = int(owner)
        elif int(owner) == pid:
            return holders.get(number) or -1, str(inode)
    return 0, ""


def _locks() -> list[tuple[str, ...]]:
    """Return number, mark of a wait, owner and inode of each lock."""
    lines = proc.text(".", "locks").splitlines()
    return [line.groups() for line in map(_LOCK.match, lines) if line]


def _descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
