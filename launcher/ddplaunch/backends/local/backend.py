"""The local backend: a job is a folder and one host process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from signal import SIGQUIT, SIGTERM
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Exit, Files, StopRequest, codec
from ddplaunch.agent.system.processes import STOPPING
from ddplaunch.agent.system.signals import is_ignored
from ddplaunch.backends import files, outputs
from ddplaunch.backends.folder import earlier, newest_bundle, state_folder, status
from ddplaunch.backends.job import (
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
from ddplaunch.backends.local import host, store
from ddplaunch.backends.local.host import Child, Host
from ddplaunch.backends.outputs import Outputs
from ddplaunch.errors import ClusterError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import Rendered

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
        self.store = store.Store(root)

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
            lines = last_lines(folder / store.HOST_LOG, 5)
            shutil.rmtree(folder, ignore_errors=True)
            raise ClusterError(
                f"the job's host process ended at once with exit code {code}"
                + "".join(f"\n    {line}" for line in lines),
                hint="`ddplaunch render --to local -o DIR` writes what was started; try `sh DIR/run.sh`",
            )
        if code is None:  # otherwise, in a program that goes on, the host remains as a zombie after its end
            threading.Thread(target=child.wait, name=f"wait for {folder}", daemon=True).start()
        return _handle(folder)

    def start_here(
        self, rendered: Rendered, *, raw: bool = False, kept: Sequence[int] = ()
    ) -> tuple[Handle, Child]:
        """Start the job as a child whose command has this process's streams. The job ends with this process.

        `raw`: the command gets the streams as they are, with the terminal that they may be. `kept`: other
        descriptors that it gets. They are closed here, so that the other end of a pipe sees when it ends.
        """
        more = [f"--die-with-parent={os.getpid()}", "--foreground"]
        if raw:
            more.append(f"--raw={os.getpgrp()}")
        if {*host.DIGITS} <= {*kept}:
            kept = [each for each in kept if each != host.STDIN]  # the shell needs one of them for stdin
        if kept:
            more.append(f"--descriptors={','.join(map(str, kept))}")
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
                "a job on this machine is started by sh, and there is none on PATH",
                hint="nothing was submitted; take an image or a machine that has one, or another target: "
                "`--to slurm`, `--to kubernetes`",
            )
        begun = self.store.begin(rendered.job, rendered.files)
        if rendered.sweep:
            codec.write(str(begun / store.SWEEP), dict(rendered.sweep))
        with (begun / store.HOST_LOG).open("wb") as file:
            if log:
                child = Child(rendered.command, output, file.fileno())
            else:
                with _stdin(raw=raw) as stdin:
                    errors = sys.stderr.fileno()
                    child = Child(rendered.command, output, errors, stdin, own_session=not raw, kept=kept)
        try:
            codec.write(str(begun / store.HOST), child.host)
            # If the launcher is killed before this line, it leaves no job; after it, it leaves one whose host
            # is on record.
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
                    (folder / store.CANCELLED).touch()
                codec.write(str(folder / Files.STOP_REQUEST), asked)
        process = host.read(folder / store.HOST)
        if process is not None:
            process.send(asked.number)

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
        process = host.read(folder / store.HOST)
        return store.lines(
            folder, wanted, follow=follow, alive=lambda: process is not None and process.alive()
        )

    def cancel(self, handle: Handle) -> Job:
        """Stop the job, with SIGKILL if necessary. Raises ClusterError if it does not end."""
        folder = self.store.find(handle.path)
        process = host.read(folder / store.HOST)
        if process is not None and process.alive():
            self.pass_on(handle, StopRequest(SIGTERM, "`ddplaunch cancel`", final=True))
            if not process.wait(STOP):
                process.kill()
                if not process.wait(KILLED):
                    raise ClusterError(
                        f"process {process.pid} of {handle} does not end, although it was killed",
                        hint=f"it waits for a disk or a device: /proc/{process.pid}/stack shows where",
                    )
        return _read_job(folder)

    def collect(self, handle: Handle) -> Bundle | None:
        folder = self.store.find(handle.path)
        job = _read_job(folder)
        if not job.state.ended and job.status is not None:
            from ddplaunch.backends import hub

            bundle = hub.diagnose(folder, job.status.attempt)
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
    """Return the job without looking at its hub's status, which takes most of the time for a list of jobs."""
    submitted = _submitted(folder, host.read(folder / store.HOST))
    return Known(_handle(folder), lambda: str(_read_job(folder).state), folder.parent.name, submitted)


def _submitted(folder: Path, process: Host | None) -> float:
    return process.at if process else folder.stat().st_mtime


def _read_job(folder: Path) -> Job:
    process = host.read(folder / store.HOST)
    # This comes before its files are read: a host that has ended writes no more.
    alive = process is not None and process.alive()
    hub_status = status(folder)
    code = None if alive or hub_status is None else hub_status.exit_code
    detail = ""
    if alive:
        state = State.RUNNING if hub_status else State.PENDING
        detail = "" if hub_status else "its hub is not up yet"
    elif code is not None and code != Exit.STOPPED:
        state = State.SUCCEEDED if code == Exit.OK else State.FAILED
        detail = hub_status.output_lost if hub_status else ""
    elif (folder / store.CANCELLED).exists():
        state = State.CANCELLED
        asked = files.read_if_valid(StopRequest, folder / Files.STOP_REQUEST)
        detail = f"by {asked.who}" if asked else ""
        detail = detail if code else "it did not end in time and was killed, so it left no verdict"
    else:
        state, detail = State.LOST, _why_lost(folder, process, stopped=code is not None)
    job = Job(
        handle=_handle(folder),
        state=state,
        submitted=_submitted(folder, process),
        name=folder.parent.name,
        ended=None if alive else _last_written(folder),
        exit_code=code,
        detail=detail,
        status=hub_status,
        earlier=earlier(folder, hub_status.attempt if hub_status else None),
        sweep=files.read_if_valid(dict[str, str], folder / store.SWEEP) or {},
    )
    return with_silence(job, SILENT_AFTER_HERE, time.time())


def _why_lost(folder: Path, process: Host | None, *, stopped: bool) -> str:
    if stopped:  # the hub leaves the same exit code whether its host was killed or stopped
        asked = files.read_if_valid(StopRequest, folder / Files.STOP_REQUEST)
        return f"ended by {asked.who}" if asked and asked.final else STOPPED_OUTSIDE
    name = f"its process {process.pid}" if process else "its process"
    what = "the machine was rebooted" if process and process.of_earlier_boot() else f"{name} is gone"
    last = "".join(f"; its last line: {line}" for line in last_lines(folder / store.HOST_LOG, 1))
    return f"{what}, and left no exit code: killed from outside, or for memory{last}"


def _last_written(folder: Path) -> float:
    """Return when the job last wrote a file, in seconds since the epoch."""
    written = [folder / name for name in (Files.STATUS, Files.OUTPUT, Files.HUB_LOG, Files.RUN)]
    return max((path.stat().st_mtime for path in written if path.exists()), default=time.time())
