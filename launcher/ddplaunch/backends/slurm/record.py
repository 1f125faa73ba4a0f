"""Keeps what this user has sent to Slurm, one folder per submission: the file, and what became of it.

Slurm forgets a job minutes after its end. Its id and the folder that it was submitted from are remembered
here, and, once it is known, how it ended.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Verdict, codec
from ddplaunch.backends import files
from ddplaunch.errors import ClusterError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import RenderedFile

_RECORD = "job.json"
_CANCELLED = "cancelled"
KEPT = 90 * 86400.0
"""Seconds for which a submission is remembered."""


@dataclass(frozen=True)
class Submission:
    """`job_id` None: it is not known whether Slurm took it. `state` and what follows: once it has ended."""

    name: str
    workdir: str  # where sbatch was called
    script: str  # the file that was sent; Slurm shows its path as the job's command
    at: float
    job_id: int | None = None
    cluster: str = ""
    state: str = ""
    exit_code: int | None = None
    ended: float | None = None
    detail: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def cancelled(self) -> bool:
        """Whether `ddplaunch cancel` has asked for its end."""
        return Path(self.script).with_name(_CANCELLED).exists()

    def mark_cancelled(self) -> None:
        """Somebody asked for its end."""
        with contextlib.suppress(OSError):  # it only makes a later sentence better
            Path(self.script).with_name(_CANCELLED).touch()


class Records:
    """Submissions of this user from machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "slurm"

    def begin(self, job: str, name: str, file: RenderedFile, workdir: str) -> Submission:
        """Write the file that will be sent. Raises ClusterError when that fails."""
        folder = self.folder
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            folder = Path(tempfile.mkdtemp(prefix=f"{job}-", dir=self.folder))
            (folder / name).write_bytes(file.content)
            submission = Submission(job, workdir, str(folder / name), time.time())
            self._write(submission)
        except OSError as error:
            if folder != self.folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise ClusterError(
                f"the job's file cannot be written: {error.filename or self.folder}: {error.strerror}",
                hint="what is sent is kept below $XDG_STATE_HOME, or ~/.local/state: make room there, or set "
                "XDG_STATE_HOME to a folder that you may write to",
            ) from error
        return submission

    def save(self, submission: Submission) -> None:
        """Replace what is remembered of it. Never fails: the job is there, and Slurm knows it."""
        with contextlib.suppress(OSError):
            self._write(submission)

    def _write(self, submission: Submission) -> None:
        codec.write(str(Path(submission.script).with_name(_RECORD)), submission)

    def drop(self, submission: Submission) -> None:
        """Forget a submission that Slurm refused."""
        shutil.rmtree(Path(submission.script).parent, ignore_errors=True)

    def all(self) -> list[Submission]:
        """The newest first."""
        found = []
        for path in self.folder.glob(f"*/{_RECORD}"):
            try:
                found.append(codec.load(Submission, json.loads(files.contents(path))))
            except (OSError, ValueError, RecursionError):
                continue
        return sorted(found, key=lambda each: each.at, reverse=True)

    def find(self, job_id: int, cluster: str = "") -> Submission | None:
        """The newest of that id: a cluster that was set up anew counts from the beginning."""
        for each in self.all():
            if each.job_id == job_id and cluster in ("", each.cluster):
                return each
        return None

    def _sweep(self) -> None:
        for path in self.folder.glob(f"*/{_RECORD}"):
            try:
                if time.time() - path.stat().st_mtime > KEPT:
                    shutil.rmtree(path.parent, ignore_errors=True)
            except FileNotFoundError:
                continue
