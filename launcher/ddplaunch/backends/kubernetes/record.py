"""Keeps the jobs that this user has submitted, and how they ended, because a cluster forgets deleted jobs.

There is a file for each name in a namespace, and next to it a folder with what the job's attempts left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ddplaunch.agent.contract import REGROUP, Bundle, Files, JobStatus, NodeStatus, Phase, bundle_file, codec
from ddplaunch.backends import files, folder
from ddplaunch.backends.folder import KEPT, EndRecord, newest_first, old
from ddplaunch.backends.job import Earlier

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job

_UNSEEN = "nothing here followed its end, and its pods took their output and evidence with them"
_SHOWN = 100
"""The most earlier attempts to name: their number comes from a label, which may say anything."""
_BUNDLE, _STATUS = Path(Files.BUNDLE).name, Path(Files.STATUS).name


class Attempts:
    """The attempts of one job, kept in `path`. An OSError while something is written is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def bundle(self, number: int) -> Bundle | None:
        """Return the bundle of this attempt; None if none was kept."""
        try:
            return files.read_bundle(self._run(number) / _BUNDLE, bundle_file.MOST_DUMPS)
        except (OSError, codec.ContractError):
            return None

    def end(self, number: int) -> JobStatus | None:
        """Return how this attempt ended; None if nothing here has seen it."""
        return files.read_if_valid(JobStatus, self._run(number) / _STATUS)

    def keep(self, bundle: Bundle) -> None:
        """Keep the last bundle of an attempt, and what it says about how the attempt ended."""
        run = self._run(bundle.attempt)
        with contextlib.suppress(OSError):
            run.mkdir(parents=True, exist_ok=True)
            bundle_file.write(str(run / _BUNDLE), bundle, mode=0o600)
            codec.write(str(run / _STATUS), _end(bundle), mode=0o600)

    def note(self, status: JobStatus) -> None:
        """Keep how an attempt ended according to its hub's status, until its bundle is there."""
        run = self._run(status.attempt)
        if not (run / _STATUS).exists():
            with contextlib.suppress(OSError):
                run.mkdir(parents=True, exist_ok=True)
                codec.write(str(run / _STATUS), status, mode=0o600)

    def earlier(self, present: int) -> tuple[Earlier, ...]:
        """Return the attempts before the `present` one, the oldest first, including those that left
        nothing.
        """
        kept = {each.number: each for each in folder.earlier(self._path, present)} if present else {}
        return tuple(kept.get(each.number, each) for each in unseen(present))

    @property
    def last(self) -> int:
        """Return the number of the last attempt that is known from what was kept; 0 if nothing was kept."""
        runs = [path.name.rpartition("-")[2] for path in folder.attempts(self._path)]
        last = max((int(name) for name in runs if name.isdecimal()), default=0)
        end = self.end(last)
        return last + (end is not None and end.exit_code == REGROUP)

    def forget(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _run(self, number: int) -> Path:
        return self._path / f"{Files.RUN}-{number}"


def unseen(present: int) -> tuple[Earlier, ...]:
    """Return the attempts before the `present` one as attempts of which nothing was kept."""
    return tuple(
        Earlier(number, None, None, why_none=_UNSEEN) for number in range(max(0, present - _SHOWN), present)
    )


def _end(bundle: Bundle) -> JobStatus:
    """Return the attempt's last status, as far as its bundle has it."""
    words = [
        NodeStatus(each.node, phase=Phase.ENDED, detail=each.text, exit_code=bundle.exit_code)
        for each in bundle.events
        if each.kind == "checkpoint" and each.node is not None
    ]
    return JobStatus(
        bundle.job,
        bundle.attempt,
        Phase.ENDED,
        bundle.written,
        words,
        bundle.started,
        bundle.written,
        verdicts=bundle.verdicts,
        exit_code=bundle.exit_code,
        gate_passed=bundle.agreed is not None,
        failed_attempts=[replace(each, evidence=None) for each in bundle.failed_attempts],
    )


_PATIENCE = 2.0
"""Seconds to wait for another process that is writing a record, which takes milliseconds."""


@dataclass(frozen=True)
class Submission(EndRecord):
    """A job that was sent; `at` in seconds since the epoch."""

    server: str
    namespace: str
    name: str
    uid: str  # of the Job or JobSet
    at: float
    cancelled: bool = False
    attempt: int = 0  # the last one, if the job has ended
    named: str = ""  # in the job file, if the job's own name has a number at the end

    @property
    def family(self) -> str:
        """Return its name in the job file, which all its submissions share."""
        return self.named or self.name

    def with_end(self, job: Job) -> Self:
        """Return this record with the end of `job` in it, and with the number of its last attempt."""
        return dataclasses.replace(super().with_end(job), attempt=job.attempt)


class Records:
    """Jobs that this user submitted, from machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self._root = root / "kubernetes"

    def save(self, submission: Submission) -> None:
        """Write the record in place of an earlier one with that name. An OSError is ignored."""
        path = self._path(submission.server, submission.namespace, submission.name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            codec.write(str(path), submission)

    def begin(self, submission: Submission) -> None:
        """Write the record of a new job, and forget an earlier job with that name."""
        self._sweep()
        self.attempts(submission).forget()
        self.save(submission)

    def attempts(self, submission: Submission) -> Attempts:
        """Return what was kept of the job's attempts."""
        path = self._path(submission.server, submission.namespace, submission.name)
        return Attempts(path.with_suffix(".attempts"))

    def paths(self, submission: Submission) -> list[Path]:
        """Return everything that is kept of the job: its attempts' folder, then its record."""
        path = self._path(submission.server, submission.namespace, submission.name)
        return [path.with_suffix(".attempts"), path]

    def keep(
        self, submission: Submission, bundle: Bundle, add: Callable[[Bundle], Bundle] = lambda known: known
    ) -> Bundle:
        """Keep the bundle of an attempt's hub, completed by `add`, and return it.

        A bundle that was kept before stays, and is completed, unless `bundle` is newer: pods, their logs and
        events are soon gone, so a later command knows less.
        """
        attempts = self.attempts(submission)
        with self._alone():
            kept = attempts.bundle(bundle.attempt)
            known = add(bundle if kept is None or kept.written < bundle.written else kept)
            if known != kept:
                attempts.keep(known)
        return known

    def bundle(self, submission: Submission, attempt: int) -> Bundle | None:
        """Return the bundle that was kept of an attempt; None if none was kept."""
        return self.attempts(submission).bundle(attempt)

    def find(self, server: str, namespace: str, name: str) -> Submission | None:
        """Return the newest submission with that name; None: there is none."""
        return files.read_if_valid(Submission, self._path(server, namespace, name))

    def all(self, server: str = "*") -> list[Submission]:
        """Return all submissions to `server`, or to all clusters, the newest first."""
        folder = server if server == "*" else _short(server)
        return newest_first(Submission, self._root.glob(f"{folder}/*/*.json"))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder for one process and one thread, if its file system has locks."""
        try:
            lock = (self._root / "lock").open("a")
        except OSError:  # then no record can be written either
            yield
            return
        with lock:
            deadline = time.monotonic() + _PATIENCE
            while not _locked(lock.fileno()) and time.monotonic() < deadline:
                time.sleep(0.01)  # flock(2) itself has no time limit
            yield

    def _path(self, server: str, namespace: str, name: str) -> Path:
        return self._root / _short(server) / namespace / f"{name}.json"

    def _sweep(self) -> None:
        for path in old(self._root.glob("*/*/*"), KEPT):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _locked(file: int) -> bool:
    """Lock the file. Returns False while another process or thread holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks
    return True


def _short(server: str) -> str:
    """Return a short folder name for a URL."""
    return hashlib.sha256(server.encode()).hexdigest()[:12]
