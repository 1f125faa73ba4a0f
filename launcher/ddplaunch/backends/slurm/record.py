"""Keeps this user's submissions, one folder each: the file that was sent, and what became of the job.

Slurm forgets a job minutes after its end. The record keeps its id, the folder from which it was submitted
and, once it is known, how the job ended.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import codec
from ddplaunch.backends.folder import KEPT, EndRecord, new_folder, newest_first, old

if TYPE_CHECKING:
    from ddplaunch.render.rendered import RenderedFile

_RECORD = "job.json"
_CANCELLED = "cancelled"


@dataclass(frozen=True)
class Submission(EndRecord):
    """A job that was sent. `job_id` None: it is not known whether Slurm has it."""

    name: str
    workdir: str  # where sbatch was called
    script: str  # the file that was sent; Slurm shows its path as the job's command
    at: float
    job_id: int | None = None
    cluster: str = ""
    sweep: dict[str, str] = field(default_factory=dict)  # its own values in a sweep, as text by key

    @property
    def cancelled(self) -> bool:
        """Whether `ddplaunch cancel` has asked for the job to end."""
        return Path(self.script).with_name(_CANCELLED).exists()

    def mark_cancelled(self) -> None:
        """Note that its user has asked for the job to end."""
        with contextlib.suppress(OSError):  # only a later sentence depends on it
            Path(self.script).with_name(_CANCELLED).touch()


class Records:
    """This user's submissions, from all machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "slurm"

    def begin(
        self, job: str, name: str, file: RenderedFile, workdir: str, sweep: Mapping[str, str]
    ) -> Submission:
        """Write the file that will be sent. Raises ClusterError if that fails."""
        with new_folder(self.folder, f"{job}-") as folder:
            for path in old(self.folder.glob(f"*/{_RECORD}"), KEPT):
                shutil.rmtree(path.parent, ignore_errors=True)
            (folder / name).write_bytes(file.content)
            submission = Submission(job, workdir, str(folder / name), time.time(), sweep=dict(sweep))
            self._write(submission)
        return submission

    def save(self, submission: Submission) -> None:
        """Replace the record. An OSError is ignored, because Slurm has the job all the same."""
        with contextlib.suppress(OSError):
            self._write(submission)

    def _write(self, submission: Submission) -> None:
        codec.write(str(Path(submission.script).with_name(_RECORD)), submission)

    def drop(self, submission: Submission) -> None:
        """Forget a submission that Slurm refused."""
        shutil.rmtree(Path(submission.script).parent, ignore_errors=True)

    def all(self) -> list[Submission]:
        """Return all submissions, the newest first."""
        return newest_first(Submission, self.folder.glob(f"*/{_RECORD}"))

    def find(self, job_id: int, cluster: str = "") -> Submission | None:
        """Return the newest submission with that id: a cluster that is set up again counts from 1 again."""
        for each in self.all():
            if each.job_id == job_id and cluster in ("", each.cluster):
                return each
        return None
