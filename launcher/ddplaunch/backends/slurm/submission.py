"""Submits a file to Slurm exactly once.

A busy controller may accept a job although sbatch gives up waiting for its reply. So sbatch runs a second
time only when it certainly did not reach the controller; otherwise the job is searched for by the path of its
file, which no other job has.

Slurm forgets a job minutes after its end. The record keeps its id and the folder that it was submitted from,
and, once it is known, how it ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import codec
from ddplaunch.backends.folder import KEPT, EndRecord, new_folder, newest_first, old
from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.commands import CommandResult, Commands, Queries
from ddplaunch.errors import ClusterError

if TYPE_CHECKING:
    from ddplaunch.render import RenderedFile

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
        """Whether `ddplaunch cancel` has asked for its end."""
        return Path(self.script).with_name(_CANCELLED).exists()

    def mark_cancelled(self) -> None:
        """Note that its user has asked for its end."""
        with contextlib.suppress(OSError):  # only a later sentence depends on it
            Path(self.script).with_name(_CANCELLED).touch()


class Records:
    """Submissions of this user from all machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "slurm"

    def begin(
        self, job: str, name: str, file: RenderedFile, workdir: str, sweep: Mapping[str, str]
    ) -> Submission:
        """Write the file that will be sent. Raises ClusterError when that fails."""
        with new_folder(self.folder, f"{job}-") as folder:
            for path in old(self.folder.glob(f"*/{_RECORD}"), KEPT):
                shutil.rmtree(path.parent, ignore_errors=True)
            (folder / name).write_bytes(file.content)
            submission = Submission(job, workdir, str(folder / name), time.time(), sweep=dict(sweep))
            self._write(submission)
        return submission

    def save(self, submission: Submission) -> None:
        """Replace the record. An OSError is ignored: Slurm has the job all the same."""
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
        """Return the newest submission of that id: a cluster that is set up again counts from 1 again."""
        for each in self.all():
            if each.job_id == job_id and cluster in ("", each.cluster):
                return each
        return None


_PARTITION = (
    "it does not know the partition",
    "`sinfo --summarize` lists the partitions; name one as `slurm.partition`",
)
_GPUS = (
    "there are no such GPUs, or Slurm is not configured for them",
    "`sinfo --format '%N %G'` lists what the nodes have; see `resources.gpus` and `resources.gpu_type`",
)
_MUNGE = (
    "authentication failed: munge does not run here, or its key differs from the controller's",
    "`munge -n | unmunge` tests it; ask an administrator",
)
_KNOWN: Mapping[str, tuple[str, str]] = {
    "Invalid partition name specified": _PARTITION,
    "invalid partition specified": _PARTITION,
    "Invalid account or account/partition combination specified": (
        "you may not use this account here",
        "`sacctmgr show associations user=$USER` lists yours; name one as `slurm.account`",
    ),
    "Invalid qos specification": (
        "you may not use this QOS here",
        "`sacctmgr show associations user=$USER format=account,partition,qos` lists yours",
    ),
    "Invalid feature specification": (
        "no node has the features of `slurm.constraint`",
        "`sinfo --format '%N %f'` lists the features of the nodes",
    ),
    "Requested reservation is invalid": (
        "there is no such reservation",
        "`scontrol show reservation` lists them",
    ),
    "Access denied to requested reservation": (
        "you may not use this reservation",
        "`scontrol show reservation` shows who may use it",
    ),
    "Memory specification can not be satisfied": (
        "no node has that much memory",
        "`sinfo --format '%N %m'` lists the nodes' memory in MiB; lower `resources.memory`",
    ),
    "Invalid generic resource (gres) specification": _GPUS,
    "Invalid Trackable RESource (TRES) specification": _GPUS,
    "Invalid license specification": ("there are no such licences", "`scontrol show licenses` lists them"),
    "Invalid node name specified": (
        "it names a node that does not exist",
        "`sinfo --Node` lists the nodes; see `slurm.nodelist` and `slurm.exclude`",
    ),
    "Requested time limit is invalid": (
        "the time limit is above what is allowed",
        "`sinfo --format '%P %l'` lists the partitions' limits; lower `slurm.time`",
    ),
    "Node count specification invalid": (
        "the partition does not allow a job that many nodes",
        "`sinfo --format '%P %s %D'` lists how many; change `nodes` or `slurm.partition`",
    ),
    "More processors requested than permitted": (
        "no node has that many CPUs",
        "`sinfo --format '%N %c'` lists them; lower `resources.cpus` or `nproc_per_node`",
    ),
    "Job violates accounting/QOS policy": (
        "it exceeds a limit of your account or QOS: number of jobs, size or time",
        "`sacctmgr show associations user=$USER` and `sacctmgr show qos` show the limits",
    ),
    "User's group not permitted to use this partition": (
        "your group may not use the partition",
        "`scontrol show partition` shows who may use it; name another as `slurm.partition`",
    ),
    "Required partition not available": (
        "the partition takes no jobs now",
        "`sinfo --summarize` shows the state of the partitions",
    ),
    "Batch script contains DOS line breaks": (
        "the file has DOS line ends",
        "submit it unchanged, as `ddplaunch render` wrote it",
    ),
    "Pathname of a file, directory or other parameter too long": (
        "the batch script, with everything that travels in it, is larger than this cluster accepts",
        "make `source` smaller, or put it on a shared file system and name it as `workdir`",
    ),
    "Invalid authentication credential": _MUNGE,
    "Protocol authentication error": _MUNGE,
    "Access/permission denied": ("you may not submit jobs here", "ask an administrator of the cluster"),
    "Job dependency problem": (
        "the job that it depends on does not exist",
        "see `slurm.dependency`",
    ),
    # sbatch prints this one after the actual reason, if there is one.
    "Requested node configuration is not available": (
        "there are not enough nodes that have everything the job requests",
        "compare `nodes`, `resources` and `slurm.constraint` with `sinfo --format '%P %D %c %m %G %f'`",
    ),
}


def explained_refusal(stderr: str) -> ClusterError:
    """Return the error for a job that sbatch refused with this `stderr`."""
    reason = "; ".join(dict.fromkeys(map(_bare, filter(str.strip, stderr.splitlines())))) or "no reason given"
    for begin, (why, hint) in _KNOWN.items():
        if begin.lower() in stderr.lower():
            return ClusterError(f"Slurm refused the job: {why}\n    sbatch: {reason}", hint=hint)
    return ClusterError(f"Slurm refused the job: {reason}", hint="nothing was submitted")


def _bare(line: str) -> str:
    return line.strip().removeprefix("sbatch: ").removeprefix("error: ").strip()


LIMIT = 60.0
"""Seconds for sbatch: a site's own submit plugins may be slow."""
APPEARS = 20.0
"""Seconds until a job that Slurm accepted is listed, once the controller answers again."""
_PAUSE = 1.0

CANCEL_WAIT = 5.0
"""Seconds to look for a job whose submission was interrupted."""

Id = tuple[int, str]
"""Job id, and the cluster's name if sbatch prints one."""


class UncertainError(ClusterError):
    """Error for a job when we do not know whether Slurm has it."""


def send(queries: Queries, record: Submission, words: Sequence[str], env: Mapping[str, str]) -> Id:
    """Submit the file of `record` with the arguments `words`. Raises ClusterError if Slurm refuses it."""
    started = time.monotonic()
    while True:
        answer = _sbatch(queries.commands, record, words, env)
        if answer.code == 0:
            try:
                return parse.job_id(answer.out)
            except parse.NonsenseError:
                return found_or_error(queries, record, answer)
        if not answer.unanswered:
            raise explained_refusal(answer.err)
        if not answer.unreached:
            return found_or_error(queries, record, answer)
        if time.monotonic() - started > queries.commands.patience:
            raise queries.commands.silent("sbatch", answer, time.monotonic() - started)
        time.sleep(_PAUSE)


def _sbatch(
    commands: Commands, record: Submission, words: Sequence[str], env: Mapping[str, str]
) -> CommandResult:
    return commands.run(
        "sbatch",
        "--parsable",
        record.script,
        *words,
        env={**os.environ, **env},
        cwd=record.workdir,
        limit=LIMIT,
    )


def try_out(commands: Commands, script: bytes, words: Sequence[str]) -> str:
    """Return when and where Slurm would start this script. Raises ClusterError if it would refuse the
    script.
    """
    answer = commands.run(
        "sbatch", "--test-only", "/dev/stdin", *words, cwd=str(Path.cwd()), limit=LIMIT, stdin=script
    )
    if answer.code == 0:
        return re.sub(r"^Job \d+ ", "", answer.last_line)
    raise commands.silent("sbatch", answer, 0.0) if answer.unanswered else explained_refusal(answer.err)


def found_or_error(queries: Queries, record: Submission, answer: CommandResult) -> Id:
    """Return the job, if Slurm has it although sbatch did not print its id. Raises ClusterError otherwise."""
    found = find_submitted(queries, record, APPEARS)
    if found is not None:
        return found, queries.commands.cluster
    reply = answer.last_line or "nothing"
    raise UncertainError(
        f"it is not known whether Slurm has the job: sbatch printed {reply!r}, and {APPEARS:.0f} s later the "
        "job is not listed",
        hint="`ddplaunch list --to slurm` shows the job if it appears later; submit it again if it does not",
    )


def find_submitted(queries: Queries, record: Submission, seconds: float) -> int | None:
    """Wait until Slurm lists the job of this file, and return its id; None after so many seconds.

    Raises ClusterError.
    """
    deadline = time.monotonic() + seconds
    while True:
        for job in queries.mine().values():
            if is_of(job, record):
                return job.job_id
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def is_of(job: parse.SlurmJob, record: Submission) -> bool:
    """Whether `job` was made from the file of `record`. Slurm lists the file's arguments after its path."""
    return job.command == record.script or job.command.startswith(f"{record.script} ")
