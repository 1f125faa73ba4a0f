"""Notes the signals that the program gets and handles itself: which, and when each came last.

Python writes each signal's number into a socket (signal.set_wakeup_fd) at once, even while the main thread
waits in C++ and the program's handler cannot run. The kernel adds its time to each number; a pipe would not
tell that from Linux 6.15 on. The socket keeps at least ten numbers until we read them, once a second. If the
program has already set such a descriptor, it keeps it. If it sets one later, as asyncio does, that one
replaces ours, and nothing more is noted.
"""

# ruff: noqa: RUF012 - runs in the user's program, and imports no more than it must

from __future__ import annotations

import os
import struct
import sys

import ddplaunch_torch  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TOLD = (
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGQUIT",
    "SIGUSR1",
    "SIGUSR2",
    "SIGXCPU",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
)
"""Signals by which others ask for something, and those of the program's own timers."""
_SO_TIMESTAMPNS = 35  # of asm-generic/socket.h, as is the kind of its messages
_TIME = "@ll"  # a timespec
_MOST = 1 << 10  # signals that are noted at once


class _State:
    reads, writes = -1, -1  # the socket's ends
    inode = 0
    forks = False  # _forked is registered
    at: dict[int, float] = {}  # by number: when it last came, as far as we know


def watch() -> None:
    """Begin, but only in the main thread, as Python requires, and not under trio, which would warn."""
    import signal
    import socket
    import threading

    main = threading.current_thread() is threading.main_thread()
    if _State.writes >= 0 or not main or "trio" in sys.modules:
        return
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    ends = [ddplaunch_torch.lifted(each.detach()) for each in socket.socketpair(socket.AF_UNIX, kind)]
    _State.reads, _State.writes = ends
    _State.inode = os.fstat(_State.reads).st_ino
    line = _socket()
    line.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    line.detach()
    before = signal.set_wakeup_fd(_State.writes, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        _close()
        return
    if not _State.forks:
        _State.forks = True
        os.register_at_fork(after_in_child=_forked)


def note() -> None:
    """Note the signals that have come since the last call. Takes a microsecond if there are none."""
    try:
        if _State.writes < 0 or os.fstat(_State.reads).st_ino != _State.inode:
            return
        line = _socket()
        try:
            for _ in range(_MOST):
                number, more, _, _ = line.recvmsg(1, 64)
                for seconds, rest in [
                    struct.unpack(_TIME, data) for _, kind, data in more if kind == _SO_TIMESTAMPNS
                ]:
                    _State.at[number[0]] = seconds + rest / 1e9
        finally:
            line.detach()
    except (OSError, struct.error):  # nothing has come, or the program has closed our socket
        pass


def _socket() -> Any:
    """Return the end that we read. Whoever gets it detaches it: it is closed by its number alone."""
    import socket

    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0, fileno=_State.reads)


def told() -> list[list[Any]]:
    """Return [number, time, handler] of each of _TOLD that has come; a handler is [name, file, line]."""
    import signal

    found = []
    for name in _TOLD:
        number = getattr(signal, name)
        if number in _State.at:
            handler: Any = signal.getsignal(number)
            code = getattr(getattr(handler, "__func__", handler), "__code__", None)
            place = [code.co_name, code.co_filename, code.co_firstlineno] if code is not None else None
            found.append([int(number), _State.at[number], place])
    return found


def _forked() -> None:
    """Leave the parent's socket alone in a forked child: the child's signals are not its parent's."""
    import signal

    try:
        mine = signal.set_wakeup_fd(-1)
        if mine not in (-1, _State.writes):
            signal.set_wakeup_fd(mine)
        if os.fstat(_State.reads).st_ino == _State.inode:
            _close()
    except Exception:  # the program's thread has forked, and keeps what there is
        pass
    _State.reads = _State.writes = -1
    _State.at = {}


def _close() -> None:
    os.close(_State.reads)
    os.close(_State.writes)
    _State.reads = _State.writes = -1
