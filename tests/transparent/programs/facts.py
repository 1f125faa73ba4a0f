"""Prints what a program can see of its surroundings: `facts.py KIND`."""

import fcntl
import json
import locale
import os
import resource
import signal
import sys
from pathlib import Path


def env() -> object:
    left_out = tuple(sys.argv[2].split(",")) if len(sys.argv) > 2 else ()
    volatile = ("TRANSPARENT_MARK", "_")
    return {k: v for k, v in sorted(os.environ.items()) if k not in left_out and k not in volatile}


def path() -> object:
    return sys.path


def flags() -> object:
    return [str(sys.flags), sys.argv, sys.orig_argv[1:], sys.dont_write_bytecode, __name__]


def fds() -> object:
    """The first numbers that a program gets; the hook's own is a high one."""
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
    flags = [fcntl.fcntl(each, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND) for each in range(3)]
    return [opened, flags, [fcntl.fcntl(each, fcntl.F_GETFD) for each in range(3)]]


def signals() -> object:
    """Dispositions and masks; of real-time signals only that nobody's are blocked."""
    named = [each for each in signal.valid_signals() if isinstance(each, signal.Signals)]
    named = [each for each in named if each < signal.SIGRTMIN]
    return {each.name: str(signal.getsignal(each)) for each in sorted(named)}, [
        str(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ]


def inherited() -> object:
    """What a program that is started gets: ignored and blocked signals below the real-time ones."""
    import subprocess

    text = subprocess.run(["grep", "Sig[BI]", "/proc/self/status"], capture_output=True, text=True).stdout
    return [hex(int(line.split()[1], 16) & 0x7FFFFFFF) for line in text.splitlines()]


def process() -> object:
    return {
        "umask": Path("/proc/self/status").read_text().partition("Umask:")[2].split()[0],
        "cwd": os.getcwd(),
        "PWD": os.environ.get("PWD"),
        "nice": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "policy": os.sched_getscheduler(0),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "core": Path("/proc/self/coredump_filter").read_text(),
        "leads its group": os.getpgrp() == os.getpid(),
        "stopped by the terminal": os.isatty(0),
        "groups": os.getgroups(),
        "personality": Path("/proc/self/personality").read_text(),
    }


def limits() -> object:
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def language() -> object:
    return [
        locale.setlocale(locale.LC_ALL, ""),
        sys.stdout.encoding,
        sys.getfilesystemencoding(),
        "é",
        str(1.5),
    ]


def streams() -> object:
    return [
        [each.isatty(), each.line_buffering, each.write_through, each.errors, each.mode]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ]


def terminal() -> object:
    size = list(os.get_terminal_size(1)) if os.isatty(1) else None
    return [[os.isatty(each) for each in range(3)], size, os.environ.get("TERM")]


def hooks() -> object:
    import threading
    import warnings

    return [
        sys.excepthook is sys.__excepthook__,
        sys.displayhook is sys.__displayhook__,
        sys.unraisablehook is sys.__unraisablehook__,
        threading.excepthook is threading.__excepthook__,
        threading.active_count(),
        sys.gettrace() is None,
        sys.getprofile() is None,
        sys.breakpointhook is sys.__breakpointhook__,
        [str(each) for each in warnings.filters if "multi-threaded" not in str(each[1])],
        "sitecustomize" in sys.modules,
        sys.getswitchinterval(),
        sys.getrecursionlimit(),
    ]


fact = json.dumps(globals()[sys.argv[1]](), indent=1, sort_keys=True, default=str)
print(fact)
Path("facts.json").write_text(fact)
