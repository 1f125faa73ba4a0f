"""Converts each source's stack format into the contract's. Pure."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any, Optional

from ddplaunch.agent.contract import Frame, Stack

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


def from_debug_server(text: str) -> list[Stack]:
    """Return the stacks of the dump that a thread of torch's debug server has had faulthandler make.

    It begins with the newest thread: the main thread is the last.
    """
    threads = [thread for thread in _threads(text) if thread.frames]
    last = [replace(thread, main=True) for thread in threads[-1:]]
    return _main_first([*(replace(thread, main=False) for thread in threads[:-1]), *last])


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
