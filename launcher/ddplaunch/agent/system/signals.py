"""Signals that are passed on from process to process until they reach the user's command.

Several processes of ours are between the sender of a signal and the command. Each of them reads its signals
from a descriptor (signalfd(2)). So none is lost while a process starts, none interrupts it, and each says who
sent it. Blocked signals are inherited: a program that wants them calls `unblock`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import resource
import signal
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from ddplaunch.agent.system import proc, processes

CRASHES = frozenset(
    [
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGABRT,
    ]
)
"""Signals that a program sends to itself when it crashes. From outside they come for faulthandler, as others
do."""
_OWN = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
"""No program can catch these, or they tell a process about its own children and files."""
FORWARDED = frozenset(int(number) for number in signal.valid_signals()) - {int(number) for number in _OWN}
"""Signals that are passed on, including real-time signals."""
PAUSES = frozenset([signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
"""Ctrl-Z, and a background job that uses the terminal: the process stops until SIGCONT."""
REQUESTS = FORWARDED - CRASHES - PAUSES
"""Among these, the ones by which somebody asks a program for something."""
_TWICE = 1.0
"""Seconds within which a signal to a whole process tree comes a second time, from our parent."""
_SI_KERNEL = 0x80
_SI_QUEUE = -1
_INFO = struct.Struct("=IiiII24xi80x")  # struct signalfd_siginfo: its first five fields, and ssi_int
_OF_GROUP = 0x64647067
"""The value that says that all processes of a group got the signal, where one of ours passes it on."""


class Received(NamedTuple):
    """A signal that has come. `sender` is 0 for the kernel, and for a process outside our container."""

    number: int
    sender: int = 0
    user: int = 0
    from_kernel: bool = False
    of_group: bool = False  # who passed it on says that all processes of a group got it

    @property
    def by_terminal(self) -> bool:
        """Whether somebody typed it."""
        return self.from_kernel and self.number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)

    @property
    def to_group(self) -> bool:
        """Whether all processes of our group got it: from the terminal, from coreutils' `timeout`, or as who
        passed it on says.
        """
        if self.from_kernel or self.of_group:
            return True
        leader = proc.stat(self.sender) if self.sender == os.getpgrp() != os.getpid() else None
        return leader is not None and leader.command == "timeout"


class SignalReader:
    """Reads the signals `numbers` of this process, even those its caller ignores (nohup, INT behind `&`).

    The command inherits that they are ignored, unless it sets a handler: then it wants the signal. For
    processes with one thread. Raises OSError if there is no signalfd.
    """

    def __init__(self, numbers: Iterable[int] = FORWARDED) -> None:
        self.numbers = {number for number in numbers if number not in PAUSES or not is_ignored(number)}
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, self.numbers)  # by our caller
        mask = (ctypes.c_ubyte * 128)()
        for number in self.numbers:
            mask[(number - 1) // 8] |= 1 << (number - 1) % 8
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"signalfd: {os.strerror(code)}")
        self._parent = os.getppid()
        self._last: dict[int, tuple[float, bool]] = {}  # number -> when it last came, from our parent?

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[Received]:
        """Return what has come, the oldest first, without our own signals and without second copies."""
        received: list[Received] = []
        while True:
            try:
                data = os.read(self._fd, _INFO.size * 16)
            except BlockingIOError:
                return [each for each in received if self._counts(each)]
            for start in range(0, len(data), _INFO.size):
                number, _, code, sender, user, value = _INFO.unpack_from(data, start)
                of_group = code == _SI_QUEUE and value == _OF_GROUP
                received.append(Received(number, sender, user, code == _SI_KERNEL, of_group))

    def close(self) -> None:
        """Close the descriptor. The signals stay blocked."""
        os.close(self._fd)

    def _counts(self, received: Received) -> bool:
        if received.number == signal.SIGCHLD:
            return True
        if received.sender == os.getpid() or (received.number == signal.SIGXCPU and received.from_kernel):
            return False  # it is our own limit of processor time, not the command's
        # A scheduler may signal the whole process tree. Then our parent, which passes on its own copy, is the
        # second one to send it.
        now = time.monotonic()
        by_parent = received.sender == self._parent
        if by_parent or _is_ancestor(received.sender):
            at, whose = self._last.get(received.number, (now - _TWICE, by_parent))
            if whose != by_parent and now - at < _TWICE:
                del self._last[received.number]
                return False
            self._last[received.number] = now, by_parent
        return True


class Witness:
    """A process of our group that blocks all signals. A signal that is pending there was sent to the group.

    kill(2) does not tell a process whether it was meant alone.
    """

    def __init__(self) -> None:
        """Start it, in a process with one thread."""
        us = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:
            self._pid = 0
            return
        if self._pid == 0:
            processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            # Pipes must end without it. Only what is open: a container may allow a billion descriptors.
            for descriptor in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):  # the list's own
                    os.close(int(descriptor))
            while os.getppid() == us:
                signal.pause()
            os._exit(0)

    def saw(self, number: int) -> bool:
        """Whether the signal has come to it, too. Then another process takes its place."""
        if not (self._pid and _mask(self._pid, "ShdPnd:") >> (number - 1) & 1):
            return False
        fresh = Witness()
        self.end()
        self._pid = fresh._pid
        return True

    def pause(self) -> None:
        """Stop it until SIGCONT, as the job has stopped."""
        if self._pid:
            os.kill(self._pid, signal.SIGSTOP)

    def end(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def pass_on(pid: int, number: int, *, of_group: bool) -> None:
    """Send a signal to a process of ours, with whether all processes of a group got it.

    Raises ProcessLookupError.
    """
    if not of_group:
        os.kill(pid, number)
    elif ctypes.CDLL(None).sigqueue(pid, number, ctypes.c_void_p(_OF_GROUP)):
        raise ProcessLookupError(pid)


class BySignal(int):
    """The exit code of a command that a signal has ended, in a shell's form: 128 + the signal's number."""

    def __new__(cls, number: int) -> BySignal:
        return super().__new__(cls, 128 + number)

    def die(self) -> None:
        """End this process by the same signal, because a shell's loop ends only if its command died of
        Ctrl-C.
        """
        number = self - 128
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)


def unblock() -> None:
    """Let this process be interrupted by signals as usual."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED | {signal.SIGCHLD})


def is_ignored(number: int) -> bool:
    """Whether our caller, or we ourselves, make this process ignore the signal."""
    return signal.getsignal(number) is signal.SIG_IGN


def has_handler(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal. False if it is gone."""
    return bool(_mask(pid, "SigCgt:") >> (number - 1) & 1)


def is_caught(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal, or ignores it. False if it is gone."""
    return has_handler(pid, number) or bool(_mask(pid, "SigIgn:") >> (number - 1) & 1)


def is_awaited(pid: int, number: int) -> bool:
    """Whether the signal does not simply end the process, because it handles, ignores or blocks it."""
    return is_caught(pid, number) or bool(_mask(pid, "SigBlk:") >> (number - 1) & 1)


def sender(received: Received) -> str:
    """Return who sent it: ` from process 12 (timeout, user alice)`. Empty if that is not known."""
    stat = proc.stat(received.sender) if received.sender else None
    if stat is None:
        return ""
    try:
        user = pwd.getpwuid(received.user).pw_name
    except KeyError:
        user = str(received.user)
    return f" from process {received.sender} ({stat.command}, user {user})"


def name(number: int) -> str:
    """Return SIGUSR1 for 10, and SIGRTMIN+2 for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def number(name: str) -> int:
    """Return 10 for SIGUSR1. Raises KeyError."""
    return signal.Signals[name].value


def _is_ancestor(pid: int) -> bool:
    """Whether it is an ancestor of ours."""
    current = os.getppid()
    while current > 1:
        if current == pid:
            return True
        stat = proc.stat(current)
        current = stat.parent if stat is not None else 0
    return False


def _mask(pid: int, field: str) -> int:
    line = next((line for line in proc.text(pid, "status").splitlines() if line.startswith(field)), "")
    return int(line.split()[1], 16) if line else 0
