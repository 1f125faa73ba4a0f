"""The Slurm backend: what Slurm says of a job, and what the job's folder says, made one."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Verdict
from ddplaunch.backends import folder, interrupts, lines
from ddplaunch.backends.job import HEARD_AFAR, Handle, Job, Selection, State, with_silence
from ddplaunch.backends.slurm import last_words, limits, outcomes, pending, submission
from ddplaunch.backends.slurm.commands import Commands
from ddplaunch.backends.slurm.evidence import collect
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.record import Records, Submission
from ddplaunch.backends.slurm.snapshot import Snapshot, Snapshots
from ddplaunch.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import Rendered

GATE_ONLY = "--gate-only"
"""Behind the script's name: no training. The script hears of it by this variable."""
_GATE_ONLY = "DDPLAUNCH_GATE_ONLY"
STOP = 150.0
"""Seconds for a job to end once told: Slurm's KillWait (30 s), its epilog, a controller that is slow."""
_POLL = 0.25


def connect() -> SlurmBackend:
    """The backend of the cluster whose commands are on PATH."""
    return SlurmBackend(folder.state_folder())


class SlurmBackend:
    """A `Backend`. Handles are `slurm://JOBID`, or `slurm://CLUSTER/JOBID` on one of several clusters."""

    def __init__(self, root: Path) -> None:
        self.records = Records(root)
        self._queries: dict[str, Queries] = {}
        self._looks = Snapshots(self.queries, self.records)

    def queries(self, cluster: str = "") -> Queries:
        """Questions to that cluster."""
        return self._queries.setdefault(cluster, Queries(Commands(cluster)))

    # --- submit

    def submit(self, rendered: Rendered) -> Handle:
        """Raises ClusterError when it can never start, or Slurm will not have it."""
        _, name, *words = rendered.command
        file = rendered.files[name]
        wanted = limits.requested(file.content.decode(), os.environ)
        # Of several clusters sbatch takes the first that has room, and only it knows which.
        queries = self.queries("" if "," in wanted.clusters else wanted.clusters)
        if "," not in wanted.clusters:
            with interrupts.let_through():
                _refuse_what_never_starts(wanted, queries)
        # The file has the name that Slurm knows the job by; `doctor` calls it otherwise.
        sent = self.records.begin(Path(name).stem, name, file, str(Path.cwd()))
        env = {_GATE_ONLY: "1"} if GATE_ONLY in words else {}
        words = [word for word in words if word != GATE_ONLY]
        try:
            with interrupts.let_through():
                job_id, cluster = submission.send(queries, sent, words, env)
        except KeyboardInterrupt:
            with interrupts.held_off():
                self._take_back(sent, queries)
            raise
        except ClusterError as error:
            if not isinstance(error, submission.UncertainError):
                self.records.drop(sent)
            raise
        self.records.save(dataclasses.replace(sent, job_id=job_id, cluster=cluster))
        return handle(job_id, cluster)

    def _take_back(self, sent: Submission, queries: Queries) -> None:
        """Ctrl-C before the handle was told: nobody wants a job that he knows nothing of."""
        try:
            job_id = submission.look_for(queries, sent, submission.TAKE_BACK)
        except ClusterError as error:
            raise submission.UncertainError(
                f"it is not known whether Slurm took the job before you interrupted it: {error.message}",
                hint="`ddplaunch list --to slurm` shows it, should it appear",
            ) from error
        if job_id is not None:
            queries.commands.run("scancel", str(job_id))
            self.records.save(dataclasses.replace(sent, job_id=job_id, cluster=queries.commands.cluster))

    # --- look

    def job(self, handle: Handle) -> Job:
        return self._job(self._looks.at(*parse_handle(handle)))

    def jobs(self) -> list[Job]:
        found = [self._job(look) for look in self._looks.at_all()]
        return sorted(found, key=lambda job: job.submitted, reverse=True)

    def handles(self) -> list[tuple[Handle, str]]:
        return [
            (handle(sent.job_id, sent.cluster), f"{sent.name}{sent.state and ', '}{sent.state}")
            for sent in self.records.all()
            if sent.job_id is not None
        ]

    def _job(self, look: Snapshot) -> Job:
        """Slurm's word, the hub's word of the same attempt, and what follows from both."""
        seen, sent = look.seen, look.sent
        told = look.told()
        cancelled = sent is not None and sent.cancelled
        submitted = sent.at if sent else (seen.submitted if seen and seen.submitted else time.time())
        own = handle(look.job_id, look.cluster)
        job = Job(own, State.RUNNING, submitted, look.name, detail=look.note, status=told)
        if seen is None or look.ended:
            return self._ended(job, look, cancelled=cancelled)
        if sent is not None and sent.state:  # somebody put it back into the queue after its end
            again = dataclasses.replace(sent, state="", exit_code=None, ended=None, detail="", verdicts=[])
            self._looks.remember(look, again)
        if seen.state in outcomes.WAITING and told is None:  # else its hub is up, and Slurm's word old
            why = pending.explain(seen, self.queries(look.cluster).surroundings(seen.partition))
            attempt = f"attempt {seen.restarts + 1}: " if seen.restarts else ""
            text = f"{attempt}{why.text}" + (f"; {look.note}" if look.note else "")
            return dataclasses.replace(job, state=State.PENDING, detail=text, hint=why.hint)
        if told is None or seen.state in ("SUSPENDED", "STOPPED"):
            missing = "; its hub is not up yet" if seen.state == "RUNNING" else ""
            says = f"Slurm calls it {seen.state.lower()} on {seen.node_list}{missing}"
            return dataclasses.replace(job, detail="; ".join(filter(None, [says, look.note])))
        if seen.state == "COMPLETING":
            return dataclasses.replace(job, detail="Slurm waits for its nodes to clean up after it")
        return with_silence(job, HEARD_AFAR, time.time())

    def _ended(self, job: Job, look: Snapshot, *, cancelled: bool) -> Job:
        seen, sent, told = look.seen, look.sent, job.status
        if seen is not None:
            how = outcomes.outcome(seen, told, cancelled=cancelled, me=os.getuid())
            # Of a job that Slurm still holds this is when it must have ended at the latest.
            ended = told.updated if look.lingers and told is not None else seen.ended or time.time()
        elif sent is not None and sent.state:
            how = outcomes.Outcome(State(sent.state), sent.exit_code, sent.detail)
            ended = sent.ended or sent.at
        else:
            how = outcomes.forgotten(told, cancelled=cancelled)
            ended = told.updated if told else time.time()
        verdicts = self._verdicts(seen, look.cluster) if seen else sent.verdicts if sent else []
        unsaid = told is None or told.exit_code is None
        if unsaid and how.state not in (State.SUCCEEDED, State.CANCELLED):
            how = how._replace(detail=how.detail or last_words.of_script(look.output))
            verdicts = verdicts or last_words.of_gates(look.folder)
        if sent is not None and not sent.state:
            kept = dataclasses.replace(
                sent, workdir=(seen and seen.workdir) or sent.workdir, verdicts=verdicts
            )
            kept = dataclasses.replace(kept, state=str(how.state), exit_code=how.exit_code)
            self._looks.remember(look, dataclasses.replace(kept, detail=how.detail, ended=ended))
        job = dataclasses.replace(job, state=how.state, exit_code=how.exit_code, detail=how.detail)
        if look.lingers and seen is not None:
            text = f"Slurm still calls it {seen.state.lower()}, and has not released {seen.node_list}"
            job = dataclasses.replace(job, lingers=text)
        # Slurm tells whole seconds, of its own clock: a short job would have ended before it was submitted.
        return dataclasses.replace(job, ended=max(ended, job.submitted), verdicts=tuple(verdicts))

    def _verdicts(self, seen: SlurmJob, cluster: str) -> list[Verdict]:
        numbers: list[int] = []
        names = ""
        if seen.state == "NODE_FAIL" and seen.node_list:
            numbers, names = self.queries(cluster).failed_nodes(seen.node_list)
        return outcomes.verdicts(seen, numbers, names)

    # --- logs, cancel, collect

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Raises ClusterError when the output lies where this machine does not see it."""
        path = parse_handle(handle)
        look = self._looks.at(*path)
        output = look.output
        if output is None or not _is_visible(output):
            raise ClusterError(
                f"the output of {handle} is not to be seen from here: "
                + (str(output) if output else "Slurm does not say where it lies"),
                hint="look as its owner, and from a machine that shares this folder with the nodes",
            )
        yield from lines.lines(
            lines.File(output),
            wanted,
            follow=follow,
            alive=lambda: not self._looks.at(*path).ended,
            poll=_POLL,
        )

    def cancel(self, handle: Handle) -> Job:
        """Raises ClusterError when the job lives on for all that was done."""
        path = parse_handle(handle)
        look = self._looks.at(*path)
        job = self._job(look)
        if job.state.ended:
            return job
        if look.sent is not None:
            look.sent.mark_cancelled()
        # Slurm sends SIGTERM to all that belongs to the job, and SIGKILL only after KillWait: in between
        # the supervisors take the evidence.
        answer = self.queries(look.cluster).commands.ask("scancel", str(look.job_id))
        if answer.code != 0 and "Invalid job id" not in answer.err and "already complet" not in answer.err:
            raise ClusterError(
                f"Slurm does not cancel {handle}: {answer.last_line}",
                hint=f"`scontrol show job {look.job_id}` says whose it is, and how it stands",
            )
        deadline = time.monotonic() + STOP
        while not (look := self._looks.at(*path, fresh=True)).ended:
            if time.monotonic() > deadline:
                state = look.seen.state if look.seen else "unknown"
                raise ClusterError(
                    f"{handle} does not end, cancelled {STOP:.0f} s ago: Slurm calls it {state}",
                    hint=f"an epilog or the kernel may hold it: `scontrol show job {look.job_id}`",
                )
            time.sleep(0.5)
        return self._job(look)

    def collect(self, handle: Handle) -> Bundle | None:
        look = self._looks.at(*parse_handle(handle))
        return collect(look, self.queries(look.cluster))


def handle(job_id: int, cluster: str = "") -> Handle:
    """Return the handle of a job of that cluster, the local one when it has no name."""
    return Handle("slurm", f"{cluster}/{job_id}" if cluster else str(job_id))


def _refuse_what_never_starts(wanted: limits.Requested, queries: Queries) -> None:
    problems = limits.problems(wanted, queries.partitions())
    if problems:
        raise ClusterError(
            "the job could never start:" + "".join(f"\n    {text}" for text in problems),
            hint="nothing was submitted; `sinfo --format '%P %l %s %D'` shows partitions and limits",
        )


def _is_visible(output: Path) -> bool:
    """Whether it can be read, or will be when it comes."""
    try:
        return output.parent.is_dir() and (not output.exists() or os.access(output, os.R_OK))
    except OSError:
        return False


def parse_handle(handle: Handle) -> tuple[int, str]:
    """Job id and cluster. Raises UsageError."""
    match = re.fullmatch(r"(?:(\w[\w.-]*)/)?(\d+)", handle.path)
    if match is None:
        raise UsageError(
            f"{handle} is not a handle of a Slurm job",
            hint="slurm://1234 is job 1234, slurm://mycluster/1234 the one of cluster mycluster",
        )
    return int(match[2]), match[1] or ""
