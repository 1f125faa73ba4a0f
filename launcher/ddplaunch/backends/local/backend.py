"""The local backend: a job is a folder, `jobs/<name>/<n>/`, and one host process.

The folder has the rendered files, output and evidence of one submission. It gets its number only when it is
complete, so a launcher that dies on the way leaves no half job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from signal import SIGQUIT, SIGTERM
from typing import TYPE_CHECKING

from ddplaunch.agent.archive import COMPILED
from ddplaunch.agent.contract import Bundle, Exit, Files, JobStatus, StopRequest, codec
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.agent.system.signals import is_ignored
from ddplaunch.backends import files, outputs
from ddplaunch.backends import lines as log_lines
from ddplaunch.backends.folder import attempts, earlier, new_folder, newest_bundle, old, state_folder, status
from ddplaunch.backends.job import (
    SILENT_AFTER_AFAR,
    SILENT_AFTER_HERE,
    STOPPED_OUTSIDE,
    Handle,
    Job,
    Known,
    Remains,
    Selection,
    State,
    with_silence,
)
from ddplaunch.backends.lines import last_lines
from ddplaunch.backends.local import host
from ddplaunch.backends.local.host import Child, Host
from ddplaunch.backends.outputs import Outputs
from ddplaunch.errors import ClusterError, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render import Rendered, RenderedFile

HOST = "host.json"
"""The host process of the job; the launcher writes it before the job starts."""
HOST_LOG = "run/host.log"
"""The log of that process; the ranks' output is in Files.OUTPUT."""
SWEEP = "sweep.json"
"""The file with the job's own values in a sweep, as text by key; other jobs have none."""
CANCELLED = "cancelled"
"""Exists once the job's user has asked for its end."""

_BEGUN = ".new-"
_ABANDONED_AFTER = 3600.0
"""Seconds after which a folder that is not yet a job is removed; writing one takes less."""


class Store:
    def __init__(self, root: Path) -> None:
        self.jobs = root / "jobs"
        self.compiled = root / COMPILED

    def begin(self, name: str, files: Mapping[str, RenderedFile]) -> Path:
        """Return a folder with all `files`, not yet a job. Raises ClusterError when it cannot be written."""
        home = self.jobs / name
        with new_folder(home, _BEGUN) as folder:
            for leftover in old(home.glob(f"{_BEGUN}*"), _ABANDONED_AFTER):
                shutil.rmtree(leftover, ignore_errors=True)  # its launcher died in `begin`
            for path, file in files.items():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.content)
                target.chmod(0o755 if file.executable else 0o644)
            (folder / Files.RUN).mkdir(exist_ok=True)
            self.compiled.mkdir(exist_ok=True)
            (folder / COMPILED).symlink_to(self.compiled)
        return folder

    def claim(self, folder: Path) -> Path:
        """Give a folder of `begin` the next number of its name, which makes it a job; return its new path.

        Raises OSError when it cannot be renamed.
        """
        home = folder.parent
        number = max(_numbers(home), default=0)
        while True:
            number += 1
            try:
                # A folder of that number is never empty, so rename fails where another launcher was faster.
                return folder.rename(home / str(number))
            except OSError:
                if not (home / str(number)).exists():
                    raise

    def find(self, path: str) -> Path:
        """Return the folder of `name/n`, or of the newest of `name`. Raises NotFoundError, UsageError."""
        name, _, number = path.partition("/")
        if name in ("", ".", "..") or (number and not number.isdecimal()) or path.endswith("/"):
            raise UsageError(
                f"local://{path} is not the handle of a local job",
                hint="local://digits/3 is the third submission of digits, local://digits the newest",
            )
        home = self.jobs / name
        numbers = _numbers(home)
        if not numbers or (number and int(number) not in numbers):
            raise NotFoundError(
                f"there is no job local://{path} on this machine", hint=self._hint(name, numbers)
            )
        return home / str(int(number) if number else numbers[-1])

    def folders(self) -> list[Path]:
        """Return the folder of every job."""
        try:
            homes = sorted(path for path in self.jobs.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []
        return [home / str(number) for home in homes for number in _numbers(home)]

    def _hint(self, name: str, numbers: list[int]) -> str:
        if numbers:
            return f"the last submission of {name} is local://{name}/{numbers[-1]}"
        from difflib import get_close_matches

        known = sorted(path.parent.name for path in self.folders())
        near = get_close_matches(name, known, n=1)
        return f"did you mean local://{near[0]}?" if near else "`ddplaunch list` shows all jobs"


def _numbers(home: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in home.iterdir() if path.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []


def lines_of(folder: Path, wanted: Selection, *, follow: bool, alive: Callable[[], bool]) -> Iterator[str]:
    """Yield the wanted lines that are there, then, with `follow`, those that come while `alive`."""
    return log_lines.lines(_AttemptLogs(folder), wanted, follow=follow, alive=alive)


class _AttemptLogs:
    """A `LogSource` of the output.log of each attempt, from where the last read ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = 0
        self.file = log_lines.GrowingFile(folder)

    def present(self) -> Iterator[bytes]:
        while True:
            runs = attempts(self.folder)
            try:
                with files.opened(runs[self.attempt] / Path(Files.OUTPUT).name) as file:
                    if len(attempts(self.folder)) != len(runs):
                        continue  # renamed meanwhile: this may be the next attempt's file
                    yield from self.file.read(file)
            except (FileNotFoundError, files.NotPlainError):
                pass
            if self.attempt == len(runs) - 1:
                return
            yield from self.file.rest()
            self.attempt += 1
            self.file = log_lines.GrowingFile(self.folder)

    def rest(self) -> Iterator[bytes]:
        return self.file.rest()


_ENDS = (*STOPPING, SIGQUIT)
START = 10.0
"""Seconds within which the host must be up or have failed; it needs a fraction of one."""
STOP = 60.0
"""Seconds for a job to end after SIGTERM. Its host collects evidence, and gives its ranks 45."""
KILLED = 10.0
"""Seconds for a job to end after SIGKILL: a rank that is deep in a system call may take a few."""


def connect() -> LocalBackend:
    """Return the backend with this user's state folder."""
    return LocalBackend(state_folder())


class LocalBackend:
    """A `Backend`, with `start_here` for a job that must not outlive the launcher."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)

    def submit(self, rendered: Rendered) -> Handle:
        """Start the job detached from this terminal. Raises ClusterError, with the job's last lines, if that
        fails.
        """
        with Path(os.devnull).open("wb") as null:
            # Files.OUTPUT has what the ranks print; in the host's log it would take the same space again.
            folder, child = self._start(rendered, null.fileno(), log=True)
        up = [folder / Files.HUB, folder / Files.STATUS]
        host.wait_until(lambda: any(path.exists() for path in up) or child.poll() is not None, START)
        code = child.poll()
        if code and not (folder / Files.STATUS).exists():
            lines = last_lines(folder / HOST_LOG, 5)
            shutil.rmtree(folder, ignore_errors=True)
            raise ClusterError(
                f"the job's host process ended at once with exit code {code}"
                + "".join(f"\n    {line}" for line in lines),
                hint="`ddplaunch render --to local -o DIR` writes the files that were started; try `sh "
                "DIR/run.sh`",
            )
        if code is None:  # otherwise, in a program that goes on, the host remains as a zombie after its end
            threading.Thread(target=child.wait, name=f"wait for {folder}", daemon=True).start()
        return _handle(folder)

    def start_here(
        self, rendered: Rendered, *, raw: bool = False, kept: Sequence[int] = (), blocked: Sequence[int] = ()
    ) -> tuple[Handle, Child]:
        """Start the job as a child whose command has this process's streams. The job ends with this process.

        `raw`: the command gets the streams as they are, with the terminal that they may be. `kept`: other
        descriptors that it gets. They are closed here, so that the other end of a pipe sees when it ends.
        `blocked`: signals that are blocked when it begins.
        """
        more = [f"--die-with-parent={os.getpid()}", "--foreground"]
        if raw:
            more.append(f"--raw={os.getpgrp()}")
        if {*host.DIGITS} <= {*kept}:
            kept = [each for each in kept if each != host.STDIN]  # the shell needs one of them for stdin
        if kept:
            more.append(f"--descriptors={','.join(map(str, kept))}")
        if blocked:
            more.append(f"--blocked={','.join(str(int(each)) for each in blocked)}")
        bound = dataclasses.replace(rendered, command=(*rendered.command, *more))
        folder, child = self._start(bound, sys.stdout.fileno(), log=False, raw=raw, kept=kept)
        for each in kept:
            os.close(each)
        return _handle(folder), child

    def _start(
        self, rendered: Rendered, output: int, *, log: bool, raw: bool = False, kept: Sequence[int] = ()
    ) -> tuple[Path, Child]:
        if shutil.which("sh") is None:
            raise ClusterError(
                "jobs on this machine are started by sh, which is not on PATH",
                hint="nothing was submitted; use an image or a machine that has sh, or another target: "
                "`--to slurm`, `--to kubernetes`",
            )
        begun = self.store.begin(rendered.job, rendered.files)
        if rendered.sweep:
            codec.write(str(begun / SWEEP), dict(rendered.sweep))
        with (begun / HOST_LOG).open("wb") as file:
            if log:
                child = Child(rendered.command, output, file.fileno())
            else:
                with _stdin(raw=raw) as stdin:
                    errors = sys.stderr.fileno()
                    child = Child(rendered.command, output, errors, stdin, own_session=not raw, kept=kept)
        try:
            codec.write(str(begun / HOST), child.host)
            # A launcher that is killed before this line leaves no job; after it, one whose host is on record.
            folder = self.store.claim(begun)
        except OSError:
            child.close_pipe()  # then it ends
            shutil.rmtree(begun, ignore_errors=True)
            raise
        child.run_job(folder)
        return folder, child

    def pass_on(self, handle: Handle, asked: StopRequest) -> None:
        """Pass a signal on to the job, with who sent it."""
        folder = self.store.find(handle.path)
        if asked.number in _ENDS:
            with contextlib.suppress(OSError):  # the job must end even if the disk is full
                if asked.number != SIGQUIT and (asked.final or not is_ignored(asked.number)):
                    (folder / CANCELLED).touch()
                codec.write(str(folder / Files.STOP_REQUEST), asked)
        process = host.read(folder / HOST)
        if process is not None:
            process.send(asked.number, of_group=asked.to_group)

    def folder(self, handle: Handle) -> Path:
        """Return the job's folder. Raises NotFoundError."""
        return self.store.find(handle.path)

    def job(self, handle: Handle) -> Job:
        return _read_job(self.store.find(handle.path))

    def jobs(self) -> list[Job]:
        jobs = [_read_job(folder) for folder in self.store.folders()]
        return sorted(jobs, key=lambda job: job.submitted, reverse=True)

    def known(self) -> list[Known]:
        return [_known(folder) for folder in reversed(self.store.folders())]

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        folder = self.store.find(handle.path)
        process = host.read(folder / HOST)
        return lines_of(folder, wanted, follow=follow, alive=lambda: process is not None and process.alive())

    def cancel(self, handle: Handle) -> Job:
        """Stop the job, with SIGKILL if necessary. Raises ClusterError if it does not end."""
        folder = self.store.find(handle.path)
        process = host.read(folder / HOST)
        if process is not None and process.elsewhere() and not _read_job(folder).state.ended:
            raise ClusterError(
                f"{handle} runs on {process.elsewhere()}, not here",
                hint="cancel it there, or cancel the scheduler's job in which it runs",
            )
        if process is not None and process.alive():
            self.pass_on(handle, StopRequest(SIGTERM, "`ddplaunch cancel`", final=True))
            if not process.wait(STOP):
                process.kill()
                if not process.wait(KILLED):
                    raise ClusterError(
                        f"process {process.pid} of {handle} was killed, but does not end",
                        hint=f"it waits for a disk or a device: /proc/{process.pid}/stack shows where",
                    )
        return _read_job(folder)

    def collect(self, handle: Handle) -> Bundle | None:
        folder = self.store.find(handle.path)
        job = _read_job(folder)
        if not job.state.ended and job.status is not None:
            from ddplaunch.backends.folder import ask_hub

            bundle = ask_hub(folder, job.status.attempt)
            if bundle is not None:
                return bundle
        return newest_bundle(folder)

    def outputs(self, handle: Handle) -> list[Outputs]:
        folder = self.store.find(handle.path)
        return outputs.of_job(folder, _read_job(folder).submitted)

    def remains(self, handle: Handle) -> Remains:
        return outputs.counted(self.store.find(handle.path))

    def delete(self, handle: Handle) -> None:
        folder = self.store.find(handle.path)
        outputs.remove(folder)
        with contextlib.suppress(OSError):  # there are other jobs of its name
            folder.parent.rmdir()

    def close(self) -> None:
        """Do nothing: it keeps nothing open."""


@contextlib.contextmanager
def _stdin(*, raw: bool) -> Iterator[int]:
    """Give the descriptor for the command's stdin: ours, unless that is a terminal in which others type now.

    `raw`: the kernel takes care of that, because the command is in the terminal's session.
    """
    with contextlib.suppress(OSError):
        os.fstat(0)
        if raw or not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp():
            yield 0
            return
    with Path(os.devnull).open("rb") as null:
        yield null.fileno()


def _handle(folder: Path) -> Handle:
    return Handle("local", f"{folder.parent.name}/{folder.name}")


def _known(folder: Path) -> Known:
    """Return the job without a look at its hub's status, on which a list of jobs spends most of its time."""
    submitted = _submitted(folder, host.read(folder / HOST))
    return Known(_handle(folder), lambda: str(_read_job(folder).state), folder.parent.name, submitted)


def _submitted(folder: Path, process: Host | None) -> float:
    return process.at if process else folder.stat().st_mtime


def _read_job(folder: Path) -> Job:
    process = host.read(folder / HOST)
    # Before its files are read: a host that has ended writes no more.
    alive = process is not None and process.alive()
    hub_status = status(folder)
    code = None if alive or hub_status is None else hub_status.exit_code
    detail = ""
    may_be_stopped = not alive and code in (None, Exit.STOPPED)
    asked = files.read_if_valid(StopRequest, folder / Files.STOP_REQUEST) if may_be_stopped else None
    if alive:
        state = State.RUNNING if hub_status else State.PENDING
        detail = "" if hub_status else "its hub is not up yet"
    elif code is not None and code != Exit.STOPPED:
        state = State.SUCCEEDED if code == Exit.OK else State.FAILED
        detail = hub_status.output_lost if hub_status else ""
    elif (folder / CANCELLED).exists() or (code == Exit.STOPPED and asked):
        # What our caller ignores, as a shell's background job does SIGINT, ends a command that handles it.
        state = State.CANCELLED
        detail = f"by {asked.who}" if asked else ""
        detail = detail if code else "it did not end in time and was killed, so it left no verdict"
    elif hub_status and code is None and process and process.elsewhere() and _is_fresh(hub_status):
        state, detail = State.RUNNING, f"on {process.elsewhere()}"
    else:
        state, detail = State.LOST, _why_lost(folder, process, stopped=code is not None)
    job = Job(
        handle=_handle(folder),
        state=state,
        submitted=_submitted(folder, process),
        name=folder.parent.name,
        ended=_last_written(folder) if state.ended else None,
        exit_code=code,
        detail=detail,
        status=hub_status,
        earlier=earlier(folder, hub_status.attempt if hub_status else None),
        sweep=files.read_if_valid(dict[str, str], folder / SWEEP) or {},
    )
    return with_silence(job, SILENT_AFTER_HERE, time.time())


def _is_fresh(hub_status: JobStatus) -> bool:
    return time.time() - hub_status.updated <= SILENT_AFTER_AFAR


def _why_lost(folder: Path, process: Host | None, *, stopped: bool) -> str:
    if stopped:  # the hub leaves the same exit code whether its host was killed or stopped
        return STOPPED_OUTSIDE
    if process and process.elsewhere():
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_last_written(folder)))
        return f"it ran on {process.elsewhere()}, and has written nothing since {since}: look there"
    name = f"its process {process.pid}" if process else "its process"
    what = "the machine was rebooted" if process and process.of_earlier_boot() else f"{name} is gone"
    last = "".join(f"; its last line: {line}" for line in last_lines(folder / HOST_LOG, 1))
    return f"{what}, and left no exit code: killed from outside, or for memory{last}"


def _last_written(folder: Path) -> float:
    """Return when the job last wrote a file, in seconds since the epoch."""
    written = [folder / name for name in (Files.STATUS, Files.OUTPUT, Files.HUB_LOG, Files.RUN)]
    return max((path.stat().st_mtime for path in written if path.exists()), default=time.time())
