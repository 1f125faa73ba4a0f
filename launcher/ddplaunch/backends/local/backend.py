"""The local backend: a job is a folder and one host process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR2, Signals
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Exit, Files, codec
from ddplaunch.backends.folder import newest_bundle, state_folder, status
from ddplaunch.backends.job import HEARD_HERE, Handle, Job, Selection, State, with_silence
from ddplaunch.backends.lines import last_words
from ddplaunch.backends.local import host, output, store
from ddplaunch.backends.local.host import Child, Host
from ddplaunch.errors import ClusterError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import Rendered

START = 10.0
"""Seconds in which the host must be up or have failed; it needs a fraction of one."""
STOP = 60.0
"""Seconds for a job to end by itself once told to; its host gives its ranks 45, for the evidence first."""
KILLED = 10.0
"""Seconds for the kernel to end what was killed: a rank deep in a system call may take a few."""


def connect() -> LocalBackend:
    """The backend with this user's state folder."""
    return LocalBackend(state_folder())


class LocalBackend:
    """A `Backend`, and `start_here` for what must not outlive the launcher."""

    def __init__(self, root: Path) -> None:
        self.store = store.Store(root)

    def submit(self, rendered: Rendered) -> Handle:
        """Start it away from this terminal. Raises ClusterError with its last words when that fails."""
        with Path(os.devnull).open("wb") as nowhere:
            # What the ranks print is in Files.OUTPUT; in the host's log it would take the same room again.
            folder, child = self._start(rendered, nowhere.fileno(), log=True)
        up = [folder / Files.HUB, folder / Files.STATUS]
        host.wait_until(lambda: any(path.exists() for path in up) or child.poll() is not None, START)
        code = child.poll()
        if code and not (folder / Files.STATUS).exists():
            words = last_words(folder / store.HOST_LOG, 5)
            shutil.rmtree(folder, ignore_errors=True)
            raise ClusterError(
                f"the job's own process ended at once, with exit code {code}"
                + "".join(f"\n    {line}" for line in words),
                hint="`ddplaunch render --to local -o DIR` writes what was started; try `sh DIR/run.sh`",
            )
        return _handle(folder)

    def start_here(self, rendered: Rendered) -> tuple[Handle, Child]:
        """Start it as our own: it writes to our stdout and stderr, and ends when we do, however we end."""
        bound = dataclasses.replace(rendered, command=(*rendered.command, f"--die-with-parent={os.getpid()}"))
        folder, child = self._start(bound, sys.stdout.fileno(), log=False)
        return _handle(folder), child

    def _start(self, rendered: Rendered, output: int, *, log: bool) -> tuple[Path, Child]:
        begun = self.store.begin(rendered.job, rendered.files)
        with (begun / store.HOST_LOG).open("wb") as file:
            child = Child(rendered.command, output, file.fileno() if log else sys.stderr.fileno())
        codec.write(str(begun / store.HOST), child.host)
        # Killed before this line, we leave no job; after it, one whose host is on record.
        folder = self.store.claim(begun)
        child.become(folder)
        return folder, child

    def pass_on(self, handle: Handle, number: Signals) -> None:
        """A signal that was meant for the job. All but SIGUSR2, which asks for evidence, ask for its end."""
        folder = self.store.find(handle.path)
        if number is not SIGUSR2:
            with contextlib.suppress(OSError):  # on a full disk the job shall end all the same
                (folder / store.CANCELLED).touch()
        carrier = host.read(folder / store.HOST)
        if carrier is not None:
            carrier.send(number)

    def job(self, handle: Handle) -> Job:
        return _look(self.store.find(handle.path))

    def jobs(self) -> list[Job]:
        found = [_look(folder) for folder in self.store.folders()]
        return sorted(found, key=lambda job: job.submitted, reverse=True)

    def handles(self) -> list[tuple[Handle, str]]:
        return [(job.handle, str(job.state)) for job in self.jobs()]

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        folder = self.store.find(handle.path)
        carrier = host.read(folder / store.HOST)
        return output.lines(
            folder, wanted, follow=follow, alive=lambda: carrier is not None and carrier.alive()
        )

    def cancel(self, handle: Handle) -> Job:
        """Raises ClusterError when the job lives on for all that was done."""
        folder = self.store.find(handle.path)
        carrier = host.read(folder / store.HOST)
        if carrier is not None and carrier.alive():
            self.pass_on(handle, SIGTERM)
            if not carrier.wait(STOP):
                # Its ranks are tied to it by the kernel, and end with it.
                carrier.send(SIGKILL)
                if not carrier.wait(KILLED):
                    raise ClusterError(
                        f"process {carrier.pid} of {handle} does not end, though it was killed",
                        hint=f"it waits in the kernel, for a disk or a device: see /proc/{carrier.pid}/stack",
                    )
        return _look(folder)

    def collect(self, handle: Handle) -> Bundle | None:
        folder = self.store.find(handle.path)
        job = _look(folder)
        if not job.state.ended and job.status is not None:
            from ddplaunch.backends import hub

            fresh = hub.diagnose(folder, job.status.attempt)
            if fresh is not None:
                return fresh
        return newest_bundle(folder)


def _handle(folder: Path) -> Handle:
    return Handle("local", f"{folder.parent.name}/{folder.name}")


def _look(folder: Path) -> Job:
    carrier = host.read(folder / store.HOST)
    # Asked before its files are read: a host that has gone has written its last.
    alive = carrier is not None and carrier.alive()
    told = status(folder)
    code = None if alive or told is None else told.exit_code
    detail = ""
    if alive:
        state = State.RUNNING if told else State.PENDING
        detail = "" if told else "its hub is not up yet"
    elif code is not None and code != Exit.STOPPED:
        state = State.SUCCEEDED if code == Exit.OK else State.FAILED
    elif (folder / store.CANCELLED).exists():
        state = State.CANCELLED
        detail = "" if code else "it did not end in time and was killed, so it left no verdict"
    else:
        state, detail = State.LOST, _why_lost(folder, carrier, told=code is not None)
    job = Job(
        handle=_handle(folder),
        state=state,
        submitted=carrier.at if carrier else folder.stat().st_mtime,
        name=folder.parent.name,
        ended=None if alive else _last_sign(folder),
        exit_code=code,
        detail=detail,
        status=told,
    )
    return with_silence(job, HEARD_HERE, time.time())


def _why_lost(folder: Path, carrier: Host | None, *, told: bool) -> str:
    if told:
        # The hub says the same when its host was killed and when it was told to stop.
        return (
            "it was ended from outside, and not by `ddplaunch cancel`: its process was killed or told to stop"
        )
    who = f"its process {carrier.pid}" if carrier else "its process"
    when = "the machine was started anew" if carrier and carrier.of_earlier_boot() else f"{who} is gone"
    words = last_words(folder / store.HOST_LOG, 1)
    said = f"; its last words: {words[0]}" if words else ""
    return f"{when}, and left no exit code: killed from outside, or for memory{said}"


def _last_sign(folder: Path) -> float:
    """Return when the job was last heard of, by the files it writes."""
    signs = [folder / name for name in (Files.STATUS, Files.OUTPUT, Files.HUB_LOG, Files.RUN)]
    return max((path.stat().st_mtime for path in signs if path.exists()), default=time.time())
