"""Takes snapshots of a job: its state in Slurm, and what is in its folder.

Slurm is asked with pauses, however often a snapshot is wanted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddplaunch.agent.contract import JobStatus
from ddplaunch.backends import folder
from ddplaunch.backends.job import LINGER, Earlier
from ddplaunch.backends.poller import Poller
from ddplaunch.backends.slurm import outcomes, submission
from ddplaunch.backends.slurm.commands import Queries
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.submission import Records, Submission
from ddplaunch.errors import ClusterError, NotFoundError

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
"""Seconds between two queries about one job. They grow while nothing changes, because thousands may be
watched."""
SILENCE = 600.0
"""Seconds for which a watched job is shown while the controller does not answer: the job itself goes on."""
_SLOW_START = 60.0
"""Seconds within which a job that runs may not have made its folder yet."""


@dataclass(frozen=True)
class Snapshot:
    """`slurm_job` None: Slurm has forgotten the job. `record` None: this machine did not submit it."""

    job_id: int
    cluster: str
    slurm_job: SlurmJob | None
    record: Submission | None
    note: str = ""  # why it may be out of date

    @property
    def ended(self) -> bool:
        return self.slurm_job is None or self.slurm_job.state in outcomes.ENDED or self.lingers

    @property
    def lingers(self) -> bool:
        """Whether its hub has reported its end while Slurm still waits, for example for a lost node."""
        if self.slurm_job is None or self.slurm_job.state in outcomes.ENDED | outcomes.WAITING:
            return False
        hub_status = self.hub_status()
        if hub_status is None or hub_status.exit_code is None or time.time() - hub_status.updated < LINGER:
            return False
        return self.folder is None or not folder.starts_again(self.folder, hub_status)

    @property
    def submitted(self) -> float | None:
        """Return when it was submitted, in seconds since the epoch."""
        return self.record.at if self.record else self.slurm_job.submitted if self.slurm_job else None

    @property
    def name(self) -> str:
        return (self.slurm_job.name if self.slurm_job else "") or (self.record.name if self.record else "")

    @property
    def output(self) -> Path | None:
        """Return the file to which all nodes print."""
        base = self.folder
        return base.with_name(f"{base.name}.out") if base else None

    @property
    def folder(self) -> Path | None:
        """Return the job's folder: it is where the job was submitted, and has the job's name and id."""
        name = self.name
        workdir = (self.slurm_job.workdir if self.slurm_job else "") or (
            self.record.workdir if self.record else ""
        )
        return Path(workdir) / f"{name}-{self.job_id}" if name and workdir else None

    @property
    def unseen_folder(self) -> Path | None:
        """Return the folder of a job that was submitted here and has had nodes, if this machine lacks it.

        Newer versions of Slurm (24.11 does, 22.05 does not) make the output file's folder where it is
        missing: what the job prints and writes is then on its first node alone, and it may well succeed.
        """
        job, folder, output = self.slurm_job, self.folder, self.output
        if self.record is None or job is None or not job.node_list or not job.started:
            return None
        if not self.ended and time.time() - job.started < _SLOW_START:
            return None
        return None if folder is None or output is None or _are_listed(folder, output) else folder

    @property
    def is_foreign(self) -> bool:
        """Whether it is running and ddplaunch did not start it."""
        runs = self.slurm_job is not None and self.slurm_job.state == "RUNNING"
        return runs and not self.is_ours

    @property
    def is_ours(self) -> bool:
        """Whether its batch script is one of ours, whichever user submitted it."""
        return self.record is not None or (self.folder is not None and self.folder.is_dir())

    def earlier(self) -> tuple[Earlier, ...]:
        """Return the attempts before the one that Slurm counts. The last of them may not have a number
        yet.
        """
        restarts = self.slurm_job.restarts if self.slurm_job else None
        return folder.earlier(self.folder, restarts) if self.folder else ()

    def hub_status(self) -> JobStatus | None:
        """Return the status that the hub wrote; None if it is an earlier attempt's, or cannot be read."""
        status = folder.status(self.folder) if self.folder else None
        now = self.slurm_job.restarts if self.slurm_job else None
        return None if status is None or now not in (None, status.attempt) else status


class _Poller(Poller):
    def __init__(self, snapshot: Snapshot, queries: Queries) -> None:
        super().__init__(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.snapshot = snapshot
        self._queries = queries
        self._answered = time.monotonic()

    def query(self) -> None:
        job_id = self.snapshot.job_id
        try:
            slurm_job = self._queries.job(job_id, patience=0)
            self._answer(slurm_job or self._queries.accounted([job_id]).get(job_id))
        except ClusterError as error:
            self._silence(error)

    def _answer(self, slurm_job: SlurmJob | None) -> None:
        """Keep the state that Slurm now reports."""
        old = self.snapshot
        self.snapshot = dataclasses.replace(old, slurm_job=slurm_job, note="")
        hub_status = self.snapshot.hub_status() if slurm_job is not None else None
        happened = _visible_state(slurm_job) != _visible_state(old.slurm_job) or (
            hub_status is not None and hub_status.exit_code is not None
        )
        self.poll_soon() if happened else self.poll_later()
        self._answered = time.monotonic()
        self.error = None

    def _silence(self, error: ClusterError) -> None:
        """Keep the last snapshot, with a note, until Slurm has not answered for SILENCE seconds."""
        silent = time.monotonic() - self._answered
        note = f"Slurm's controller has not answered for {silent:.0f} s"
        self.snapshot = dataclasses.replace(self.snapshot, note=note)
        if silent > SILENCE:
            self.error = error


class Snapshots:
    """Keeps the last snapshot of each job, and refreshes it when it is time to."""

    def __init__(self, queries: Callable[[str], Queries], records: Records) -> None:
        self._queries = queries
        self._records = records
        self._pollers: dict[tuple[int, str], _Poller] = {}

    def at(self, job_id: int, cluster: str, *, fresh: bool = False) -> Snapshot:
        """Return a snapshot that is seconds old; with `fresh`, a new one. Raises NotFoundError and
        ClusterError.
        """
        poller = self._pollers.get((job_id, cluster))
        if poller is None:
            first = self._first(job_id, cluster)
            self._pollers[job_id, cluster] = _Poller(first, self._queries(first.cluster))
            return first
        poller.refresh(fresh=fresh, ended=poller.snapshot.ended)
        return poller.snapshot

    def _first(self, job_id: int, cluster: str) -> Snapshot:
        record = self._records.find(job_id, cluster)
        if record is not None:
            cluster = record.cluster
        try:
            slurm_job = self._queries(cluster).job(job_id)
        except ClusterError:
            if record is None or not record.state:
                raise
            slurm_job = None  # its end is on record and will not change
        if slurm_job is None and not (record and record.state):
            slurm_job = self._queries(cluster).accounted([job_id]).get(job_id)
        if slurm_job is not None and record is not None and not _is_same(slurm_job, record):
            # A cluster that is set up again counts its jobs from 1 again.
            slurm_job, record = (slurm_job, None) if not record.state else (None, record)
        if slurm_job is None and record is None:
            raise _not_found(job_id, cluster)
        return Snapshot(job_id, cluster, slurm_job, record)

    def at_all(self) -> list[Snapshot]:
        """Return all jobs of this user, with one query to each cluster and one to its accounting.

        Jobs that were not submitted from here are included if they wait or run on this machine's cluster.
        """
        snapshots = []
        records = self._records.all()
        numbers = {each.job_id for each in records}
        for cluster in {"", *(each.cluster for each in records if not each.state)}:
            queries = self._queries(cluster)
            mine = queries.mine()
            open_here = [each for each in records if each.cluster == cluster and not each.state]
            open_here = [self._identified(each, mine) for each in open_here]
            known = [each for each in open_here if each.job_id is not None]
            lost = [each.job_id for each in known if each.job_id not in mine and each.job_id is not None]
            mine |= queries.accounted(lost)
            for each in known:
                assert each.job_id is not None
                slurm_job = mine.get(each.job_id)
                same = slurm_job is not None and _is_same(slurm_job, each)
                snapshots.append(Snapshot(each.job_id, cluster, slurm_job if same else None, each))
            numbers |= {each.job_id for each in known}
            if not cluster:
                others = [each for number, each in mine.items() if number not in numbers]
                others = [each for each in others if each.state not in outcomes.ENDED]
                snapshots += [Snapshot(each.job_id, cluster, each, None) for each in others]
        done = [each for each in records if each.state and each.job_id is not None]
        return snapshots + [Snapshot(each.job_id or 0, each.cluster, None, each) for each in done]

    def _identified(self, record: Submission, mine: dict[int, SlurmJob]) -> Submission:
        """Return the record with its job id, in case the job appeared only after sbatch had given up."""
        if record.job_id is None:
            for slurm_job in mine.values():
                if submission.is_of(slurm_job, record):
                    record = dataclasses.replace(record, job_id=slurm_job.job_id)
                    self._records.save(record)
        return record

    def remember(self, snapshot: Snapshot, record: Submission) -> None:
        """Save the record, because Slurm forgets a job soon after its end."""
        self._records.save(record)
        poller = self._pollers.get((snapshot.job_id, snapshot.cluster))
        if poller is not None:
            poller.snapshot = dataclasses.replace(poller.snapshot, record=record)

    def close(self) -> None:
        """Wait for the queries that are under way."""
        for poller in self._pollers.values():
            poller.join()


def _are_listed(folder: Path, output: Path) -> bool:
    """Whether the job's folder or its output is here. NFS may have cached that a name is missing: it asks
    its server again when a folder is opened (nfs(5), close-to-open consistency).
    """
    try:
        return not {folder, output}.isdisjoint(folder.parent.iterdir())
    except OSError:
        return False


def _is_same(slurm_job: SlurmJob, record: Submission) -> bool:
    """Whether they are the same job. Accounting does not report the command, only the name."""
    return submission.is_of(slurm_job, record) if slurm_job.command else slurm_job.name == record.name


def _visible_state(slurm_job: SlurmJob | None) -> tuple[str, str, int | None] | None:
    return (slurm_job.state, slurm_job.reason, slurm_job.restarts) if slurm_job else None


def _not_found(job_id: int, cluster: str) -> NotFoundError:
    where = f" on cluster {cluster}" if cluster else ""
    return NotFoundError(
        f"Slurm has no job {job_id}{where}, and none with this id was submitted from here",
        hint="`ddplaunch list --to slurm` shows your jobs; Slurm forgets jobs some minutes after their end",
    )
