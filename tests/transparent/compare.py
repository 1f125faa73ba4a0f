"""Runs a command plain or under `ddplaunch run`, and says in what the two differ."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests import deepspeed_build, ports
from tests.busy import BUSY
from tests.transparent.table import PIECES, Row

BIN = Path(sys.executable).parent
DDPLAUNCH = str(BIN / "ddplaunch")
PROGRAMS = Path(__file__).with_name("programs")
MARK = "TRANSPARENT_MARK"
"""In the environment of every process of a side: what is left of it is found by its value."""
SHM = Path("/dev/shm")
GONE = 3.0 * BUSY
"""Seconds in which processes may end that were told to when the command ended."""
JOB = "apiVersion: ddplaunch/v1\nname: table\n"
KEY = "a secret of thirty-two characters"
UNENDED = "did not end in"
OURS = re.compile(
    rb"\d\d:\d\d:\d\d |ddplaunch: |\[\d+/(?:ddplaunch|launch)\] "
    rb"|  (?:ok|\?|FAIL|-) {2,}\w+ {2,}| {20,}hint: "  # the table of the gate, which nodes that join print
)
"""How the lines of ddplaunch begin. They go to stderr, and are no output of the command."""
VOLATILE = (
    (re.compile(rb"\b([A-Z])\d{4} \d\d:\d\d:\d\d\.\d+ (?:\d+ )?"), rb"\1 "),  # torch's log: date, time, pid
    # libkineto's log, of torch.profiler: date, time, pid, thread
    (re.compile(rb"(?m)^([A-Z]+):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ "), rb"\1 "),
    (re.compile(rb"(?<=time      : )\S+"), b"TIME"),  # torchrun's table of failures
    (re.compile(rb"\(pid: \d+\)|\bpid[: ]+\d+"), b"pid"),
    (re.compile(rb"0x[0-9a-f]{6,}"), b"ADDRESS"),
    (re.compile(rb"\b\d+(?:\.\d+)?m?s\b(?: \(\d+:\d\d:\d\d\))?"), b"SECONDS"),  # pytest says more of a minute
)


@dataclass
class Outcome:
    """What a side did: the same command must do the same on the other."""

    codes: list[int | str] = field(default_factory=list)  # of each node
    stdout: bytes = b""
    stderr: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # processes, by their first words
    shared: list[str] = field(default_factory=list)  # names in /dev/shm
    moves: bool = False  # its output came little by little
    may_end: bool = False  # the last end of a line in stderr may be ddplaunch's
    ours: bytes = b""  # what ddplaunch itself said, for whoever reads a failure

    def text(self) -> str:
        """Return all of it for a person."""
        parts = [f"exit code: {self.codes}", *(f"left: {each}" for each in self.left)]
        parts += [f"/dev/shm/{each}" for each in self.shared]
        for name, data in (("stdout", self.stdout), ("stderr", self.stderr), ("ddplaunch", self.ours)):
            if data:
                parts.append(f"{name}, {len(data)} bytes:\n{_shortened(data)}")
        parts += [f"file {name}: {_shortened(data)}" for name, data in self.files.items()]
        return "\n".join(parts)


def plain(row: Row, folder: Path) -> Outcome:
    """Run the row's command as it is, in a folder below `folder`."""
    return _Side(row, folder, under=False).run()


def under(row: Row, folder: Path) -> Outcome:
    """Run the row's command under `ddplaunch run`, in a folder that has the same path."""
    return _Side(row, folder, under=True).run()


def submitted(row: Row, folder: Path) -> Outcome:
    """Submit the row's job file to this machine, in a folder that has the same path, and wait for its end."""
    return _Side(row, folder, under=True, job=True).run()


def differences(row: Row, one: Outcome, other: Outcome) -> list[str]:
    """Return a line for each thing in which the outcomes differ, of those that the row compares."""
    found = _exit_codes(one, other)
    ended = other.may_end and bool(one.stderr) and not one.stderr.endswith(b"\n")
    one = replace(one, stderr=one.stderr + b"\n" * ended)
    for name in ("stdout", "stderr"):
        a, b = getattr(one, name), getattr(other, name)
        if name in row.compares and _comparable(a, row) != _comparable(b, row):
            found.append(f"{name}: {_first_difference(_comparable(a, row), _comparable(b, row))}")
    if "files" in row.compares:
        for name in sorted({*one.files, *other.files}):
            a, b = one.files.get(name), other.files.get(name)
            if a != b:
                found += [f"file {name}: {a!r:.300} and {b!r:.300}"]
    if one.left != other.left and "left" in row.compares:
        found.append(f"left processes: {one.left} and {other.left}")
    if one.shared != other.shared:
        found.append(f"left in /dev/shm: {one.shared} and {other.shared}")
    if "moves" in row.compares and one.moves != other.moves:
        found.append(f"output came little by little: {one.moves} and {other.moves}")
    return found


def _exit_codes(one: Outcome, other: Outcome) -> list[str]:
    if one.codes != other.codes:
        return [f"exit code: {one.codes} and {other.codes}"]
    unended = [code for code in one.codes if isinstance(code, str) and code.startswith(UNENDED)]
    return [f"exit code: the command has none on either side, it {each}" for each in unended[:1]]


def report(row: Row, folder: Path) -> str:
    """Return what differs between the sides of the row, and both sides; nothing where they are the same."""
    one, other = plain(row, folder), under(row, folder)
    found = differences(row, one, other)
    if not found:
        return ""
    lines = [f"{row.name}: {row.command}", *found]
    return "\n".join([*lines, "", "--- plain", one.text(), "", "--- under ddplaunch", other.text()])


class _Side:
    def __init__(self, row: Row, folder: Path, *, under: bool, job: bool = False) -> None:
        self.row = row
        self.under = under
        self.job = job
        self.folder = folder
        self.here = folder / "here"
        self.mark = f"transparent-{os.getpid()}-{int(under)}-{time.monotonic_ns()}"
        self.port = str(ports.own_port())
        self.logs = folder / ("under" if under else "plain")
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Run it, wait for its end, and look at what is there."""
        self.logs.mkdir()
        shutil.copytree(PROGRAMS, self.here, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in self.row.files.items():
            (self.here / name).parent.mkdir(parents=True, exist_ok=True)
            (self.here / name).write_text(text)
        (self.here / "job.yaml").write_text(JOB + self.row.job)
        given = {path: path.read_bytes() for path in self._files()}
        shared = self._shared()
        try:
            if self.row.terminal:
                self._in_terminal()
            else:
                self._with_files()
            self.outcome.left = self._left()
        finally:
            for pid in self._marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.outcome.shared = sorted(self._shared() - shared)
        for path in self._files():
            data = path.read_bytes()
            if given.get(path) != data:
                self.outcome.files[path.relative_to(self.here).as_posix()] = data
        self.here.rename(self.logs / "here")
        return self.outcome

    # --- the command

    def _words(self, node: int) -> list[str]:
        text = self.row.command.replace("{port}", self.port).replace("{node}", str(node))
        words = shlex.split(text)
        if self.job:
            return [DDPLAUNCH, "submit", "job.yaml", "--to", "local", "--wait"]
        if self.under:
            ours = [DDPLAUNCH, "run"]
            if self.row.nodes > 1:
                ours += ["--join", "--gate-port", self.gate_port]
                if words[0] != "torchrun":
                    ours += ["--nodes", str(self.row.nodes), "--node-rank", str(node)]
                    ours += ["--master", "127.0.0.1"]
            words = [*ours, "--", *words]
        elif self.row.by_env:
            words = ["env", *words]
        if self.row.ignores:
            words = ["sh", "-c", f"trap '' {' '.join(self.row.ignores)}; exec \"$@\"", "sh", *words]
        return words

    def _env(self) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "USER": "somebody",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "PWD": str(self.here),
            "HF_HOME": str(home),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DDPLAUNCH_PROFILE": "none",
            **({"DDPLAUNCH_KEY": KEY} if self.row.nodes > 1 else {}),
            **(deepspeed_build.environment() if self.row.deepspeed else {}),
            MARK: self.mark,
            **{name: value.replace("{port}", self.port) for name, value in self.row.env.items()},
        }

    def _with_files(self) -> None:
        self.gate_port = str(ports.own_port()) if self.row.nodes > 1 else ""
        processes, outs, errs = [], [], []
        for node in range(self.row.nodes):
            out, err = self.logs / f"stdout-{node}", self.logs / f"stderr-{node}"
            outs.append(out)
            errs.append(err)
            with out.open("wb") as to, err.open("wb") as to_err:
                processes.append(
                    subprocess.Popen(
                        self._words(node),
                        cwd=self.here,
                        env=self._env(),
                        stdin=subprocess.PIPE if self.row.stdin is not None else subprocess.DEVNULL,
                        stdout=to,
                        stderr=to_err,
                        process_group=0,
                    )
                )
        watch = threading.Thread(target=self._watch_growth, args=(outs + errs, processes), daemon=True)
        watch.start()
        for process in processes:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(self.row.stdin or b"")
                    process.stdin.close()
        self._signal(processes[0], outs[0])
        for process in processes:
            self.outcome.codes.append(self._code(process))
        watch.join()
        self.outcome.stdout = b"".join(each.read_bytes() for each in outs)
        self._part_stderr(b"".join(each.read_bytes() for each in errs))

    def _signal(self, process: subprocess.Popen[bytes], out: Path) -> None:
        """Send the row's signals, each once its text is in the output."""
        for text, name in self.row.signals:
            if text:
                self._until(process, lambda text=text: text.encode() in out.read_bytes())
            else:
                time.sleep(0.5)
            if process.poll() is not None:
                return
            number = signal.Signals[f"SIG{name.lstrip('-')}"]
            if name.startswith("-"):
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    def _until(self, process: subprocess.Popen[bytes], happened: object) -> None:
        until = time.monotonic() + self.row.seconds
        while not happened() and process.poll() is None and time.monotonic() < until:  # type: ignore[operator]
            time.sleep(0.02)

    def _code(self, process: subprocess.Popen[bytes]) -> int | str:
        try:
            code = process.wait(self.row.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{UNENDED} {self.row.seconds:.0f} s"
        return 128 - code if code < 0 else code  # what a shell says of it

    def _part_stderr(self, data: bytes) -> None:
        lines = data.splitlines(keepends=True)
        # Where the command has not ended its line, ddplaunch does before its own.
        self.outcome.may_end = self.under and bool(lines) and bool(OURS.match(lines[-1]))
        self.outcome.stderr = b"".join(each for each in lines if not (self.under and OURS.match(each)))
        self.outcome.ours = b"".join(each for each in lines if self.under and OURS.match(each))

    def _watch_growth(self, paths: Sequence[Path], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Note whether the streams have grown at several moments."""
        sizes: list[int] = []
        while any(process.poll() is None for process in processes):
            size = sum(path.stat().st_size for path in paths)
            if size and (not sizes or sizes[-1] != size):
                sizes.append(size)
            time.sleep(0.2)
        self.outcome.moves = len(sizes) >= PIECES

    def _in_terminal(self) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *self._words(0)],
            cwd=self.here,
            env=self._env(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        seen, pieces, last = b"", 0, 0.0
        typed = list(self.row.typed)
        until = time.monotonic() + self.row.seconds
        while time.monotonic() < until:
            if not select.select([ours], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the last process has closed the terminal
                break
            if not data:
                break
            seen += data
            if time.monotonic() - last > 0.15:
                pieces, last = pieces + 1, time.monotonic()
            while typed and typed[0][0].encode() in seen:
                os.write(ours, typed.pop(0)[1].encode())
        self.outcome.codes.append(self._code(process))
        os.close(ours)
        self.outcome.moves = pieces >= PIECES
        self.outcome.ours = seen  # mixed with its output, so that a row in a terminal compares files

    # --- what is there afterwards

    def _files(self) -> Iterator[Path]:
        for path in sorted(self.here.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and ".pytest_cache" not in path.parts:
                yield path

    def _marked(self) -> list[int]:
        found, value = [], f"{MARK}={self.mark}".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                ours = value in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if ours and state not in "ZX":
                    found.append(int(name))
        return found

    def _left(self) -> list[str]:
        until = time.monotonic() + GONE
        while self._marked() and time.monotonic() < until and "left" not in self.row.leaves:
            time.sleep(0.1)
        found = []
        for pid in self._marked():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found.append(b" ".join(words[:3]).decode(errors="replace"))
        return sorted(found)

    def _shared(self) -> set[str]:
        """Return entries of /dev/shm that are named by the mark, and of torch's processes that have ended."""
        found = set()
        for path in SHM.iterdir():
            pid = re.match(r"torch_(\d+)_", path.name)
            dead = pid is not None and not Path(f"/proc/{pid[1]}").exists()
            if self.mark in path.name or dead:
                found.add(path.name.replace(self.mark, "*") if not dead else "torch's")
        return found


def _comparable(data: bytes, row: Row) -> bytes:
    if row.exact:
        return data
    for pattern, replacement in (*VOLATILE, *((re.compile(each.encode()), b"*") for each in row.volatile)):
        data = pattern.sub(replacement, data)
    return b"".join(sorted(data.splitlines(keepends=True)))  # processes write side by side


def _first_difference(one: bytes, other: bytes) -> str:
    at = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    begin = max(0, at - 60)
    return (
        f"{len(one)} and {len(other)} bytes, from byte {at}: "
        f"{one[begin : at + 200]!r} and {other[begin : at + 200]!r}"
    )


def _shortened(data: bytes) -> str:
    text = data.decode(errors="backslashreplace")
    return text if len(text) < 6000 else f"{text[:3000]}\n...\n{text[-3000:]}"
