"""The state of a job at one moment, by Slurm and by the job's folder.

Slurm is asked with pauses, however often a snapshot is wanted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddplaunch.agent.contract import Exit, JobStatus
from ddplaunch.backends import folder
from ddplaunch.backends.slurm import outcomes, submission
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.record import Records, Submission
from ddplaunch.backends.watched import Watched
from ddplaunch.errors import ClusterError, NotFoundError

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
"""Seconds between two questions about one job, growing while nothing changes: thousands may be watched."""
LINGER = 4.0
"""Seconds after the hub's last word in which Slurm ends most jobs, and knows more of some."""
SILENCE = 600.0
"""Seconds for which a watched job outlasts a controller that does not answer; the job itself runs on."""


@dataclass(frozen=True)
class Snapshot:
    """`seen` None: Slurm has forgotten the job. `sent` None: it was not submitted from here."""

    job_id: int
    cluster: str
    seen: SlurmJob | None
    sent: Submission | None
    note: str = ""  # why this look may be old

    @property
    def ended(self) -> bool:
        return self.seen is None or self.seen.state in outcomes.ENDED or self.lingers

    @property
    def lingers(self) -> bool:
        """Whether it has ended by its hub's last word, while Slurm still waits, as for a lost node."""
        if self.seen is None or self.seen.state in outcomes.ENDED | outcomes.WAITING:
            return False
        told = self.told()
        if told is None or told.exit_code is None or time.time() - told.updated < LINGER:
            return False
        return not self._starts_again(told)

    def _starts_again(self, told: JobStatus) -> bool:
        """Whether the batch script will have it requeued."""
        if told.exit_code != Exit.NODE_AT_FAULT or self.folder is None:
            return False
        return told.attempt < folder.retries(self.folder)

    @property
    def name(self) -> str:
        return (self.seen.name if self.seen else "") or (self.sent.name if self.sent else "")

    @property
    def output(self) -> Path | None:
        """Return where everything that the nodes print comes together."""
        base = self.folder
        return base.with_name(f"{base.name}.out") if base else None

    @property
    def folder(self) -> Path | None:
        """The job's own folder; its place follows from where it was submitted, and its name and id."""
        name = self.name
        workdir = (self.seen.workdir if self.seen else "") or (self.sent.workdir if self.sent else "")
        return Path(workdir) / f"{name}-{self.job_id}" if name and workdir else None

    def told(self) -> JobStatus | None:
        """Return what the hub says, unless that is of an earlier attempt."""
        status = folder.status(self.folder) if self.folder else None
        now = self.seen.restarts if self.seen else None
        return None if status is None or now not in (None, status.attempt) else status


class _Watched(Watched):
    def __init__(self, look: Snapshot, queries: Queries) -> None:
        super().__init__(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.seen = look
        self._queries = queries
        self._answered = time.monotonic()

    def ask(self) -> None:
        job_id = self.seen.job_id
        try:
            seen = self._queries.job(job_id, patience=0)
            self._answer(seen or self._queries.accounted([job_id]).get(job_id))
        except ClusterError as error:
            self._silence(error)

    def _answer(self, seen: SlurmJob | None) -> None:
        """Slurm's word now."""
        old = self.seen
        self.seen = dataclasses.replace(old, seen=seen, note="")
        told = self.seen.told() if seen is not None else None
        happened = _essence(seen) != _essence(old.seen) or (told is not None and told.exit_code is not None)
        self.soon() if happened else self.later()
        self._answered = time.monotonic()
        self.error = None

    def _silence(self, error: ClusterError) -> None:
        """Slurm says nothing; what was seen last stands, for a while."""
        silent = time.monotonic() - self._answered
        note = f"Slurm's controller has not answered for {silent:.0f} s"
        self.seen = dataclasses.replace(self.seen, note=note)
        if silent > SILENCE:
            self.error = error


class Snapshots:
    """Keeps the last snapshot of each job, and knows when to ask anew."""

    def __init__(self, queries: Callable[[str], Queries], records: Records) -> None:
        self._queries = queries
        self._records = records
        self._watched: dict[tuple[int, str], _Watched] = {}

    def at(self, job_id: int, cluster: str, *, fresh: bool = False) -> Snapshot:
        """The job as it was a moment ago; with `fresh`, now. Raises NotFoundError, ClusterError."""
        watched = self._watched.get((job_id, cluster))
        if watched is None:
            first = self._first(job_id, cluster)
            self._watched[job_id, cluster] = _Watched(first, self._queries(first.cluster))
            return first
        watched.look(fresh=fresh, ended=watched.seen.ended)
        return watched.seen

    def _first(self, job_id: int, cluster: str) -> Snapshot:
        sent = self._records.find(job_id, cluster)
        if sent is not None:
            cluster = sent.cluster
        try:
            seen = self._queries(cluster).job(job_id)
        except ClusterError:
            if sent is None or not sent.state:
                raise
            seen = None  # its end is on record, and stays what it is while the controller is away
        if seen is None and not (sent and sent.state):
            seen = self._queries(cluster).accounted([job_id]).get(job_id)
        if seen is not None and sent is not None and not _is_same(seen, sent):
            # A cluster that was set up anew counts its jobs from the beginning.
            seen, sent = (seen, None) if not sent.state else (None, sent)
        if seen is None and sent is None:
            raise _not_found(job_id, cluster)
        return Snapshot(job_id, cluster, seen, sent)

    def at_all(self) -> list[Snapshot]:
        """Every job that was submitted from here: one question per cluster, and one to its accounting."""
        found = []
        sent = self._records.all()
        for cluster in {each.cluster for each in sent if not each.state}:
            queries = self._queries(cluster)
            mine = queries.mine()
            open_here = [each for each in sent if each.cluster == cluster and not each.state]
            open_here = [self._identified(each, mine) for each in open_here]
            known = [each for each in open_here if each.job_id is not None]
            lost = [each.job_id for each in known if each.job_id not in mine and each.job_id is not None]
            mine |= queries.accounted(lost)
            for each in known:
                assert each.job_id is not None
                seen = mine.get(each.job_id)
                same = seen is not None and _is_same(seen, each)
                found.append(Snapshot(each.job_id, cluster, seen if same else None, each))
        done = [each for each in sent if each.state and each.job_id is not None]
        return found + [Snapshot(each.job_id or 0, each.cluster, None, each) for each in done]

    def _identified(self, sent: Submission, mine: dict[int, SlurmJob]) -> Submission:
        """A job that appeared only after sbatch had given up."""
        if sent.job_id is None:
            for seen in mine.values():
                if submission.is_of(seen, sent):
                    sent = dataclasses.replace(sent, job_id=seen.job_id)
                    self._records.save(sent)
        return sent

    def remember(self, look: Snapshot, sent: Submission) -> None:
        """Keep how it ended; Slurm will not know it for long."""
        self._records.save(sent)
        watched = self._watched.get((look.job_id, look.cluster))
        if watched is not None:
            watched.seen = dataclasses.replace(watched.seen, sent=sent)


def _is_same(seen: SlurmJob, sent: Submission) -> bool:
    """Accounting does not tell the command; the name is what it has."""
    return submission.is_of(seen, sent) if seen.command else seen.name == sent.name


def _essence(seen: SlurmJob | None) -> tuple[str, str, int | None] | None:
    return (seen.state, seen.reason, seen.restarts) if seen else None


def _not_found(job_id: int, cluster: str) -> NotFoundError:
    where = f" on cluster {cluster}" if cluster else ""
    return NotFoundError(
        f"Slurm knows of no job {job_id}{where}, and none was submitted from here",
        hint="`ddplaunch list --to slurm` shows yours; Slurm forgets jobs some minutes after their end",
    )
