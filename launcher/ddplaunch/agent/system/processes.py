"""This process and its relatives: prctl, the process tree, what it may do, who connects to it, its programs.

These are Linux calls that Python lacks, with a few lines around those that it has.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable, NoReturn, Optional

import ddplaunch.agent

if TYPE_CHECKING:
    import socket

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask a program to end."""
TMP = "/tmp"  # noqa: S108 - the default of every program
PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CREDENTIALS = struct.Struct("3i")  # pid, user and group: struct ucred


def prctl(option: int, argument: int) -> None:
    """Call prctl(2). Raises OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(parent: int, with_signal: int = signal.SIGTERM) -> None:
    """Have the kernel send us `with_signal` when `parent`, our parent, dies; at once if it is dead already.

    Raises OSError. The kernel watches the parent *thread*: if a parent starts us from a thread, it must keep
    that thread.
    """
    prctl(PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != parent:
        os.kill(os.getpid(), with_signal)


def open_pid(pid: int) -> Optional[int]:
    """Return a descriptor that is readable when the process ends; None: it is gone, or Linux is older than
    5.3.
    """
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies. Raises OSError."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or with -pid to its group, which may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def run_and_exit(work: Callable[[], int], failed: int) -> NoReturn:
    """Run `work` in this forked process, and end the process with the exit code that `work` returns.

    `failed` is the exit code if `work` raises.
    """
    code = failed
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def descendants(root: int) -> list[int]:
    """Return the living descendants of `root`, parents before their children, without zombies."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in ("Z", "X"):
                children.setdefault(int(fields[1]), []).append(int(name))
    pids: list[int] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            pids.append(child)
            queue.append(child)
    return pids


def accept_own(listener: socket.socket) -> Iterator[tuple[socket.socket, int]]:
    """Yield the waiting connections to a Unix socket from our own user, each with its process; close others.

    The pid comes from the kernel, because the process may be in another pid namespace.
    """
    from socket import SO_PEERCRED, SOL_SOCKET  # most modules that import this one need no socket

    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(credentials)
        if user == os.getuid():
            connection.setblocking(False)
            yield connection, pid
        else:
            connection.close()


def own_command() -> list[str]:
    """Return the words that start this same agent: its archive, or its package."""
    archive = getattr(ddplaunch.agent.__loader__, "archive", None)
    python = sys.executable or os.readlink("/proc/self/exe")  # without a PATH, Python does not know it
    return [python, "-I", "-S", archive] if archive else [python, "-m", "ddplaunch.agent"]


def inherited() -> list[int]:
    """Return the descriptors, besides 0, 1 and 2, that we were given: `<(command)`, `3<file`, make's pipes.

    Descriptors that Python opens itself are not inherited by others, and are not among them.
    """
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            if number > 2 and os.get_inheritable(number):
                descriptors.append(number)
        except OSError:  # the list's own descriptor
            continue
    return sorted(descriptors)


def forget_coercion() -> None:
    """Remove what Python itself has put into the environment, so that the user's command does not get it.

    In the C locale Python sets LC_CTYPE=C.UTF-8 for its children (PEP 538).
    """
    if os.environ.get("LC_CTYPE") not in ("C.UTF-8", "C.utf8", "UTF-8"):
        return
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")
    except OSError:
        return
    if not any(each.startswith(b"LC_CTYPE=") for each in given):
        del os.environ["LC_CTYPE"]


# --- what this process may do beyond its limits

IPC_LOCK = 14  # linux/capability.h
SYS_ADMIN = 21
SYS_RESOURCE = 24
_FIRST_NAMESPACE = ["0", "0", "4294967295"]


def has_capability(*capabilities: int) -> bool:
    """Whether it has one of these in the first user namespace: only there do they lift a limit."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            held = next(line.split()[1] for line in file if line.startswith("CapEff:"))
        return is_in_first_namespace() and any(int(held, 16) >> each & 1 for each in capabilities)
    except (OSError, StopIteration, ValueError):
        return False


def is_in_first_namespace() -> bool:
    """Whether its user namespace is the first one, as it is outside containers for users who are not root."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == _FIRST_NAMESPACE
    except OSError:
        return False


# --- programs, as execvp(3) and a shell find them

ABSENT, UNEXECUTABLE = 127, 126


def refused(name: str, path: str, folder: str = ".") -> int:
    """Return the exit code of a shell that cannot start `name`, in `folder` and with this PATH; 0: it can."""
    code = ABSENT
    for place in [""] if os.sep in name else path.split(os.pathsep):
        file = os.path.join(folder, place, name)
        if os.path.isdir(file) or not os.path.exists(file):
            code = UNEXECUTABLE if os.path.exists(file) and os.sep in name else code
        elif not os.access(file, os.X_OK):
            code = UNEXECUTABLE
        else:
            return ABSENT if absent_interpreter(file, path) else 0
    return code


def absent_interpreter(file: str, path: str) -> str:
    """Return the interpreter of a script's first line, if it is missing; else ""."""
    try:
        with open(file, "rb") as script:
            line = script.readline(512).decode(errors="replace")
    except OSError:
        return ""  # it may be executed all the same
    if not line.startswith("#!"):
        return ""
    # Linux, fs/binfmt_script.c: spaces and tabs end the name, and a carriage return is part of it.
    name, *rest = re.split(r"[ \t]+", line[2:].rstrip("\n").strip(" \t"))
    if os.path.basename(name) == "env" and rest and not re.match(r"-|.*=", rest[0]):
        return "" if shutil.which(rest[0], path=path) else rest[0]
    return "" if not name or os.path.exists(name) else name


def is_script(file: str) -> bool:
    """Whether a shell reads the file, which the kernel cannot execute: it is text."""
    try:
        with open(file, "rb") as opened:
            return b"\0" not in opened.read(256)
    except OSError:
        return False
