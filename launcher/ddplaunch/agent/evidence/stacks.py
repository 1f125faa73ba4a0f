"""Converts each source's stacks into the contract's form, and asks one source, faulthandler, for them.

The sources are the hook, py-spy, torch's debug server, and faulthandler, which needs no GIL. A process that
cannot answer shows its MPI function by its source line alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Frame, Stack
from ddplaunch.agent.hook import ddplaunch_mpi

FRAMES_KEPT = 80
"""Frames of one stack. Deep recursion keeps its innermost half and its outermost half."""
THREADS_KEPT = 40

_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>.*)\])? \(most recent call first\):"
)
_SPAWN = "torch/multiprocessing/spawn.py"
_PYTHONS = re.compile(r"libpython|python\d|libffi|_ctypes")
"""Libraries through which Python calls native code."""
_SYSTEMS = re.compile(r"lib(c|m|pthread|rt|dl|stdc\+\+)[.-]|ld-|\[vdso\]")
_CRASH = "Fatal Python error: "
"""With this faulthandler begins a dump of a process that crashes."""
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)')


def from_hook(threads: list[dict[str, Any]]) -> list[Stack]:
    """Return the stacks of `threads`: [{"name", "main", "frames": [[name, file, line], innermost first]}]."""
    stacks = [
        Stack(
            str(thread["name"]),
            bool(thread["main"]),
            _cut([Frame(str(name), str(file), int(line)) for name, file, line in thread["frames"]]),
            int(thread.get("tid", 0)),
        )
        for thread in threads
    ]
    return _main_first(stacks)


def from_py_spy(text: str, pid: int) -> list[Stack]:
    """Return the stacks in the output of `py-spy dump --json`. Raises ValueError for other text.

    Names are without their class, which py-spy alone adds, from Python 3.11 on.
    """
    stacks = []
    for thread in json.loads(text):
        frames = [
            Frame(str(frame["name"]).rpartition(".")[2], str(frame["filename"]), int(frame.get("line") or 0))
            for frame in thread["frames"]
        ]
        main = thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread"
        tid, owns = int(thread.get("os_thread_id") or 0), thread.get("owns_gil") is True
        stacks.append(Stack(str(thread.get("thread_name") or ""), main, _cut(frames), tid, owns_gil=owns))
    return _main_first(stacks)


def spawned_number(text: str) -> Optional[int]:
    """Return the number that torch's mp.spawn has given to the process of this dump with its locals.

    None where it has started no such process, and for text that is no dump.
    """
    try:
        for frame in (frame for thread in json.loads(text) for frame in thread["frames"]):
            if frame["name"] == "_wrap" and str(frame["filename"]).endswith(_SPAWN):
                numbers = [each["repr"] for each in frame["locals"] if each["name"] == "i"]
                return int(numbers[0]) if numbers else None
    except (ValueError, KeyError, TypeError):
        pass
    return None


def native_holder(text: str) -> tuple[int, str]:
    """Return the thread that owns the GIL, and its native function, in `py-spy dump --native --json`.

    (0, "") where no thread owns it; "" where no function has a name. Raises ValueError for other text.
    """
    for thread in json.loads(text):
        if thread.get("owns_gil") is True:
            above = itertools.takewhile(lambda frame: frame.get("module"), thread["frames"])
            names = [(str(f["module"]).rpartition("/")[2], str(f["name"])) for f in above]
            named = [pair for pair in names if not pair[1].startswith("0x") and not _PYTHONS.match(pair[0])]
            own = [pair for pair in named if not _SYSTEMS.match(pair[0])]
            return int(thread.get("os_thread_id") or 0), ":".join(next(iter(own or named), ()))
    return 0, ""


def from_faulthandler(text: str) -> list[Stack]:
    """Return the stacks of one dump. The main thread took the signal: the kernel prefers it."""
    return _main_first(_threads(text))


def read_crash(path: str) -> list[Stack]:
    """Return the stacks that faulthandler has written when the process crashed; none where it has not.

    Where a thread of native code has crashed, as one of Gloo's, it is none of these.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            _, crash, text = file.read().rpartition(_CRASH)
    except OSError:
        return []
    found = [replace(thread, crashed=thread.main) for thread in _threads(text)] if crash else []
    return _main_first(_last_is_main(found))


def from_debug_server(text: str) -> list[Stack]:
    """Return the stacks of the dump that a thread of torch's debug server has had faulthandler make."""
    return _main_first(_last_is_main([thread for thread in _threads(text) if thread.frames]))


def _last_is_main(threads: list[Stack]) -> list[Stack]:
    """Return the threads of a dump of all: it begins with the newest, and the main thread is the last."""
    last = [replace(thread, main=True) for thread in threads[-1:]]
    return [*(replace(thread, main=False) for thread in threads[:-1]), *last]


def _threads(text: str) -> list[Stack]:
    stacks: list[Stack] = []
    for line in text.splitlines():
        thread = _THREAD.match(line)
        if thread:
            stacks.append(Stack(thread["name"] or "", thread["current"] == "Current thread", []))
            continue
        frame = _FRAME.match(line)
        if frame and stacks:
            stacks[-1].frames.append(Frame(frame["name"], frame["file"], int(frame["line"])))
    return [Stack(stack.thread, stack.main, _cut(stack.frames)) for stack in stacks]


def _main_first(stacks: list[Stack]) -> list[Stack]:
    theirs = [stack for stack in stacks if stack.main or not any(map(_of_hook, stack.frames))]
    return sorted(theirs, key=lambda stack: not stack.main)[:THREADS_KEPT]


def _of_hook(frame: Frame) -> bool:
    return frame.file.endswith(("ddplaunch_hook.py", "ddplaunch_caught.py"))


def _cut(frames: list[Frame]) -> list[Frame]:
    if len(frames) <= FRAMES_KEPT:
        return frames
    half = FRAMES_KEPT // 2
    return frames[:half] + frames[-half:]


# --- MPI

MPI_LIBRARY = "libmpi"
"""Prefix of the file name of every MPI's library."""
_MPI_FILE = "mpi4py/MPI"
"""The file in the frame that is added: the extension's real name is not known from outside."""


def with_mpi_function(stacks: list[Stack], ready: bool) -> list[Stack]:
    """Return the stacks of a process that has loaded MPI, with a frame for the main thread's MPI function.

    `ready`: MPI is initialized. An import that never ends before that is MPI_Init.
    """
    return [_with_mpi_frame(stack, ready) if stack.main and stack.frames else stack for stack in stacks]


def _with_mpi_frame(stack: Stack, ready: bool) -> Stack:
    innermost = stack.frames[0]
    if not ready and "importlib" in innermost.file:
        name: Optional[str] = "Init"
    else:
        name = ddplaunch_mpi.named_at(innermost.file, innermost.line)
    if name is None:
        return stack
    return dataclasses.replace(stack, frames=[Frame(name, _MPI_FILE, 0), *stack.frames])


# --- faulthandler, by a signal

_FAULT_SIGNAL = signal.SIGRTMIN + 6  # as the hook registers it
_DUMP_COMPLETE = 0.1
"""Seconds without growth after which a dump counts as complete, because it has no end mark."""


def ask_faulthandler(
    files: Mapping[int, str], until: float, meanwhile: Callable[[], None]
) -> dict[int, list[Stack]]:
    """Have processes write their stacks, through a signal, which needs no GIL.

    `files`: by pid, the file to which faulthandler writes. Only processes whose hook has registered it may be
    asked, because the signal would end others. Returns the stacks, by pid, of those that have written any by
    `until` (time.monotonic()). Calls `meanwhile` every 20 ms.
    """
    dumps: dict[int, _FaultDump] = {}
    for pid, path in files.items():
        with contextlib.suppress(OSError):
            dump = _FaultDump(path)
            os.kill(pid, _FAULT_SIGNAL)
            dumps[pid] = dump
    while time.monotonic() < until and False in {dump.is_whole() for dump in dumps.values()}:
        time.sleep(0.02)
        meanwhile()
    written = {pid: dump.read() for pid, dump in dumps.items()}
    return {pid: its for pid, its in written.items() if its}


class _FaultDump:
    """Text that faulthandler appends to a file from now on. Raises OSError if there is no such file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115 - until it is read
        self._begin = self._size = os.fstat(self._file.fileno()).st_size
        self._grown = time.monotonic()

    def is_whole(self) -> bool:
        size, now = os.fstat(self._file.fileno()).st_size, time.monotonic()
        if size > self._size:
            self._size, self._grown = size, now
        return self._size > self._begin and now - self._grown >= _DUMP_COMPLETE

    def read(self) -> list[Stack]:
        with self._file as file:
            file.seek(self._begin)
            return from_faulthandler(file.read())
