"""Ties a rank to its launcher and to the supervisor by signals, which need no GIL."""

# ruff: noqa: UP031 - runs on Python 3.8, and imports no more than it must

from __future__ import annotations

import os

_NODE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DUMP_SIGNAL = 6  # above SIGRTMIN
_PDEATHSIG, _PTRACER = 1, 0x59616D61
_ANYONE = -1 & (1 << 64) - 1


def register_fault_dump() -> str:
    """Have a signal write all stacks to a file, even while C code holds the GIL.

    Returns the file's path; "" where that is impossible, as outside the main thread.
    """
    try:
        import faulthandler
        import signal

        folder = os.path.join(_NODE, "stacks")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "%d.txt" % os.getpid())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Python removes the handler when it ends; the one before must not kill.
        signal.signal(signal.SIGRTMIN + DUMP_SIGNAL, signal.SIG_IGN)
        faulthandler.register(signal.SIGRTMIN + DUMP_SIGNAL, file=file, all_threads=True, chain=False)
        return path
    except Exception:
        return ""


def tie_to_launcher(ptrace: bool) -> None:
    """Have the kernel kill this rank when its launcher dies: a killed launcher must leave no rank behind."""
    try:
        import ctypes
        import signal

        parent = os.getppid()
        libc = ctypes.CDLL(None)
        if ptrace:
            libc.prctl(_PTRACER, ctypes.c_ulong(_ANYONE), 0, 0, 0)
        # The kernel ties to the parent *thread*: only its main thread is sure to live as long as the process.
        with open("/proc/%d/task/%d/children" % (parent, parent), encoding="ascii") as file:
            tied = str(os.getpid()) in file.read().split()
        if tied:
            libc.prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
    except Exception:
        pass
