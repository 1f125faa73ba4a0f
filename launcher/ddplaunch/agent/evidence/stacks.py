"""Converts each source's stacks into the contract's form, and reads the source at which threads stand.

The sources of stacks are the hook, py-spy, torch's debug server, and faulthandler, which needs no GIL and is
asked here. A process that cannot answer shows its MPI function by its source line alone.

The source is read where the rank itself would read it. By a program's loops a rank is known that has left
one. Nothing of the program is run.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from typing import Any, Callable, Optional

from ddplaunch.agent.contract import Frame, Function, Handler, Stack
from ddplaunch.agent.evidence import branches, program
from ddplaunch.agent.hook import ddplaunch_mpi
from ddplaunch.agent.system import files, proc
from ddplaunch.agent.text.printable import printable

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
            daemon=thread.get("daemon"),
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


# --- lines of source

WAIT = 0.5
"""Seconds for all files: they may lie on the storage that has stopped to answer."""
_MOST_TURNS = 6.0
"""Where so many threads wait for each CPU, or more, reading may take that much longer."""
_LONGEST = 160
_LARGEST = 4 << 20
"""Bytes of a file that is read."""
_LINES = 200
_LOOP_LENGTH = 6
"""Lines of a loop, at most, to a sleep in it."""
_FILES = 16
"""Whose loops are looked for."""


class SourceLines:
    """Reads in a thread of its own. Once that does not come back, nothing more is read.

    A large program may take too long to parse for its functions; then only functions are no longer read.
    """

    def __init__(self) -> None:
        self._stuck = False
        self._slow = False  # functions

    def read(self, frames: Iterable[tuple[Frame, int]]) -> dict[str, str]:
        """Return text by "FILE:LINE" of frames, each with the number of its process."""
        return self._within(_read_lines, sorted(frames, key=str)[:_LINES])

    def find_loops(self, files: Mapping[str, int], unchanged_since: float) -> dict[str, list[list[int]]]:
        """Return the loops in files, as `read_loops` does; one that cannot be read is left out.

        `files`: by path, a process that knows the file by it.
        """
        return self._within(_read_loops, list(files.items())[:_FILES], unchanged_since)

    def find_handlers(self, files: Mapping[str, int], unchanged_since: float) -> dict[str, list[Handler]]:
        """Return the handlers in files, as `find_loops` does the loops."""
        return self._within(_read_handlers, list(files.items())[:_FILES], unchanged_since)

    def find_functions(
        self, places: Mapping[str, tuple[int, AbstractSet[int]]], unchanged_since: float
    ) -> dict[str, list[Function]]:
        """Return the functions of these lines by file, with the branches there, as `branches.find` does.

        `places`: by path, a process that knows the file by it, and the lines.
        """
        if self._stuck or self._slow:
            return {}
        found = self._within(_read_functions, list(places.items())[:_FILES], unchanged_since)
        self._slow, self._stuck = self._stuck, False
        return found

    def _within(self, read: Callable[..., None], wanted: list[Any], *more: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        if wanted and not self._stuck:
            reader = threading.Thread(target=read, args=(results, wanted, *more), daemon=True)
            with contextlib.suppress(RuntimeError):  # the ranks have used up all threads: no line is shown
                reader.start()
                load = os.getloadavg()[0] / (os.cpu_count() or 1)
                reader.join(WAIT * min(max(load, 1.0), _MOST_TURNS))
                self._stuck = reader.is_alive()
        return dict(results)


def key(frame: Frame) -> str:
    """Return the name of its line in NodeEvidence.lines."""
    return f"{frame.file}:{frame.line}"


def _read_lines(texts: dict[str, str], wanted: list[tuple[Frame, int]]) -> None:
    for frame, pid in wanted:
        if key(frame) in texts:
            continue  # ranks that stand at one line share its text: nothing is read or parsed again
        with contextlib.suppress(OSError, ValueError):
            path, since = proc.path_from_here(pid, frame.file), _started(pid)
            text = line(path, frame.line, since)
            if "sleep(" in text:
                text = _loop_until(path, frame.line, since)[:_LONGEST] or text
            if text:
                texts[key(frame)] = text


def _loop_until(path: str, number: int, since: float) -> str:
    """Return the lines of the loop around a line, as far as this one: what it waits for is in them."""
    around = [begin for begin, end in read_loops(path, since) or () if begin <= number <= end]
    first = max((begin for begin in around if begin > number - _LOOP_LENGTH), default=number)
    return " ".join(line(path, each, since) for each in range(first, number + 1))


def _read_loops(
    by_file: dict[str, list[list[int]]], files: list[tuple[str, int]], unchanged_since: float
) -> None:
    for file, pid in files:
        lines = read_loops(proc.path_from_here(pid, file), unchanged_since)
        if lines is not None:
            by_file[file] = lines


def line(path: str, number: int, unchanged_since: float) -> str:
    """Return a line of a regular file, counted from 1; "" where the file is another one by now.

    Raises OSError or ValueError where it cannot be read.
    """
    file = files.open_unchanged(path, _LARGEST, unchanged_since)
    if file is None:
        return ""
    with file:
        text = next(islice(file, max(number - 1, 0), None), b"").decode(errors="replace")
    return printable(text.strip())[:_LONGEST]


def _started(pid: int) -> float:
    """Return the moment of a process's start, in seconds since the epoch. Raises ValueError without it."""
    facts = proc.stat(pid)
    if facts is None:
        raise ValueError(pid)
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + facts.started / os.sysconf("SC_CLK_TCK")


def _read_handlers(
    by_file: dict[str, list[Handler]], files: list[tuple[str, int]], unchanged_since: float
) -> None:
    for file, pid in files:
        found = read_handlers(proc.path_from_here(pid, file), unchanged_since)
        if found is not None:
            by_file[file] = found


def _read_functions(
    by_file: dict[str, list[Function]],
    places: list[tuple[str, tuple[int, AbstractSet[int]]]],
    unchanged_since: float,
) -> None:
    programs = []
    for file, (pid, _) in places:
        with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            path = proc.path_from_here(pid, file)
            source = files.open_unchanged(path, _LARGEST_PROGRAM, unchanged_since)
            if source is not None:
                with source:
                    programs.append(program.Program(file, source.read().decode("utf-8-sig")))
    with contextlib.suppress(RecursionError, MemoryError):
        by_file.update(branches.find(programs, {file: lines for file, (_, lines) in places}))


_LARGEST_PROGRAM = 1 << 20


def read_loops(path: str, unchanged_since: float) -> Optional[list[list[int]]]:
    """Return [first line, last line] of each loop statement, without its `else`.

    None where the file cannot be read as Python, is large, or was changed after the moment `unchanged_since`.
    """
    tree = _parsed(path, unchanged_since)
    if tree is None:
        return None
    return sorted(_span([loop, *loop.body]) for loop in ast.walk(tree) if isinstance(loop, program.LOOPS))


def read_handlers(path: str, unchanged_since: float) -> Optional[list[Handler]]:
    """Return where the program goes on only to raise again what has been raised. None as `read_loops`.

    That is a `finally` without a `return`, an `except` that raises again or ends the process, or the
    `__exit__` of a `with`, which may as well keep the exception for itself, but comes back at once then.
    """
    tree = _parsed(path, unchanged_since)
    if tree is None:
        return None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            heads = [item.context_expr for item in node.items]
            found.append(Handler("with", _span(node.body), [node.lineno, _span(heads)[1]]))
        elif isinstance(node, program.TRIES):
            if node.finalbody and not _returns(node.finalbody):
                guarded = _span([*node.body, *node.handlers, *node.orelse])
                found.append(Handler("finally", guarded, _span(node.finalbody)))
            found += [
                Handler("except", _span(node.body), _span(handler.body))
                for handler in node.handlers
                if isinstance(handler.body[-1], ast.Raise) or _ends_process(handler.body[-1])
            ]
    return sorted(found, key=lambda handler: handler.lines)


def _returns(body: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.Return) for each in body for node in ast.walk(each))


def _ends_process(statement: ast.stmt) -> bool:
    """Whether it calls sys.exit, os._exit, exit or quit."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    called = call.func if isinstance(call, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}" in ("sys.exit", "os._exit")
    return isinstance(called, ast.Name) and called.id in ("exit", "quit")


def _span(nodes: Sequence[Any]) -> list[int]:
    """Return the first line of the first of these nodes, and the last line of the last."""
    return [nodes[0].lineno, nodes[-1].end_lineno or nodes[-1].lineno]


def _parsed(path: str, unchanged_since: float) -> Optional[ast.AST]:
    try:
        file = files.open_unchanged(path, _LARGEST_PROGRAM, unchanged_since)
        if file is None:
            return None
        with file:
            return ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
