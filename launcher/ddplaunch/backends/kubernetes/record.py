"""Keeps the jobs that this user has sent, and how they ended: a cluster forgets what is deleted.

One file for each name in a namespace, and beside it the bundle of a job that is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Verdict, codec
from ddplaunch.backends import files

KEPT = 90 * 86400.0
"""Seconds for which a job is remembered."""
_PATIENCE = 2.0
"""Seconds for whoever else keeps something, which takes milliseconds."""


@dataclass(frozen=True)
class Submission:
    """`state` and what follows: once it has ended."""

    server: str
    namespace: str
    name: str
    uid: str  # of the Job or JobSet
    at: float
    cancelled: bool = False
    state: str = ""
    exit_code: int | None = None
    ended: float | None = None
    detail: str = ""
    verdicts: list[Verdict] = field(default_factory=list)


class Records:
    """Jobs of this user that were sent from machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self._root = root / "kubernetes"

    def save(self, submission: Submission) -> None:
        """Remember it, in place of what was remembered of that name. Never fails: it only helps later."""
        path = self._path(submission.server, submission.namespace, submission.name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            codec.write(str(path), submission)

    def begin(self, submission: Submission) -> None:
        """A new job: whatever had its name before is forgotten."""
        self._sweep()
        with contextlib.suppress(OSError):
            self._bundle(submission).unlink(missing_ok=True)
        self.save(submission)

    def keep(
        self,
        submission: Submission,
        bundle: Bundle,
        add: Callable[[Bundle], Bundle] = lambda known: known,
    ) -> Bundle:
        """Keep the job's evidence by its hub's last words, and return what is known now.

        What was kept of these words, or of later ones, stays, and is what `add` adds to: pods, their logs
        and events are soon gone, so whoever looks later sees less.
        """
        with self._alone():
            kept = self.bundle(submission)
            known = add(bundle if kept is None or kept.written < bundle.written else kept)
            if known != kept:
                with contextlib.suppress(OSError):
                    codec.write(str(self._bundle(submission)), known, mode=0o600)
        return known

    def bundle(self, submission: Submission) -> Bundle | None:
        """None: none was kept."""
        try:
            return files.read(Bundle, self._bundle(submission))
        except (OSError, codec.ContractError):
            return None

    def find(self, server: str, namespace: str, name: str) -> Submission | None:
        """The newest of that name."""
        return _read(self._path(server, namespace, name))

    def all(self, server: str = "*") -> list[Submission]:
        """The newest first; without `server`, of all clusters."""
        folder = server if server == "*" else _short(server)
        found = [_read(path) for path in self._root.glob(f"{folder}/*/*.json")]
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: each.at, reverse=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time, and one thread, where the folder has locks."""
        try:
            lock = (self._root / "lock").open("a")
        except OSError:  # nothing can be kept, either
            yield
            return
        with lock:
            deadline = time.monotonic() + _PATIENCE
            while not _locked(lock.fileno()) and time.monotonic() < deadline:
                time.sleep(0.01)  # flock(2) itself has no bound
            yield

    def _path(self, server: str, namespace: str, name: str) -> Path:
        return self._root / _short(server) / namespace / f"{name}.json"

    def _bundle(self, submission: Submission) -> Path:
        path = self._path(submission.server, submission.namespace, submission.name)
        return path.with_suffix(".bundle")

    def _sweep(self) -> None:
        for path in self._root.glob("*/*/*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > KEPT:
                    path.unlink()


def _locked(file: int) -> bool:
    """Whether nobody else is at it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks
    return True


def _short(server: str) -> str:
    """A folder's name for a URL."""
    return hashlib.sha256(server.encode()).hexdigest()[:12]


def _read(path: Path) -> Submission | None:
    try:
        return codec.load(Submission, json.loads(files.contents(path)))
    except (OSError, ValueError, RecursionError):
        return None
