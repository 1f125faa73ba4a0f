"""The Slurm backend: combines Slurm's state of a job with the files in the job's folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Files, StopRequest, Verdict, codec
from ddplaunch.backends import files, folder, interrupts, lines, outputs
from ddplaunch.backends.job import (
    SILENT_AFTER_AFAR,
    Handle,
    Job,
    Known,
    Remains,
    Selection,
    State,
    with_silence,
)
from ddplaunch.backends.outputs import Outputs
from ddplaunch.backends.slurm import evidence, outcomes, pending, submission
from ddplaunch.backends.slurm.commands import Commands, Queries
from ddplaunch.backends.slurm.evidence import collect
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.snapshot import Snapshot, Snapshots
from ddplaunch.backends.slurm.submission import Records, Submission
from ddplaunch.errors import ClusterError, NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render import Rendered
    from ddplaunch.spec.models import JobSpec

GATE_ONLY = "--gate-only"
"""An argument after the script's name: run only the gate. The script reads it from this variable."""
_GATE_ONLY = "DDPLAUNCH_GATE_ONLY"
STOP = 150.0
"""Seconds for a cancelled job to end: Slurm's KillWait (30 s), its epilog, a slow controller."""
_POLL = 0.25


def connect() -> SlurmBackend:
    """Return the backend of the cluster whose commands are on PATH."""
    return SlurmBackend(folder.state_folder())


class SlurmBackend:
    """A `Backend`. Handles are `slurm://JOBID`, or `slurm://CLUSTER/JOBID` on one of several clusters."""

    def __init__(self, root: Path) -> None:
        self.records = Records(root)
        self._queries: dict[str, Queries] = {}
        self._snapshots = Snapshots(self.queries, self.records)

    def queries(self, cluster: str = "") -> Queries:
        """Return the queries for that cluster."""
        return self._queries.setdefault(cluster, Queries(Commands(cluster)))

    # --- submit

    def submit(self, rendered: Rendered) -> Handle:
        """Submit the job. Raises ClusterError if it can never start, or if Slurm refuses it."""
        _, name, *words = rendered.command
        file = rendered.files[name]
        wanted = pending.requested(file.content.decode(), os.environ)
        # Of several clusters sbatch takes the first that has room, and only it knows which.
        queries = self.queries("" if "," in wanted.clusters else wanted.clusters)
        if "," not in wanted.clusters:
            with interrupts.let_through():
                _refuse_what_never_starts(wanted, queries)
        # Slurm knows the job by the name of its file. For `doctor`, Rendered.job is another name.
        record = self.records.begin(Path(name).stem, name, file, str(Path.cwd()), rendered.sweep)
        env = {_GATE_ONLY: "1"} if GATE_ONLY in words else {}
        words = [word for word in words if word != GATE_ONLY]
        try:
            with interrupts.let_through():
                job_id, cluster = submission.send(queries, record, words, env)
        except KeyboardInterrupt:
            with interrupts.held_off():
                self._cancel_unconfirmed(record, queries)
            raise
        except ClusterError as error:
            if not isinstance(error, submission.UncertainError):
                self.records.drop(record)
            raise
        self.records.save(dataclasses.replace(record, job_id=job_id, cluster=cluster))
        return handle(job_id, cluster)

    def try_out(self, rendered: Rendered) -> str:
        """Return when and where the job could start. Raises ClusterError if Slurm would refuse it."""
        _, name, *words = rendered.command
        content = rendered.files[name].content
        wanted = pending.requested(content.decode(), os.environ)
        queries = self.queries("" if "," in wanted.clusters else wanted.clusters)
        if "," not in wanted.clusters:
            _refuse_what_never_starts(wanted, queries)
        return submission.try_out(queries.commands, content, words)

    def _cancel_unconfirmed(self, record: Submission, queries: Queries) -> None:
        """Cancel the job if Ctrl-C came before its handle was printed: its user could not find it."""
        try:
            job_id = submission.find_submitted(queries, record, submission.CANCEL_WAIT)
        except ClusterError as error:
            raise submission.UncertainError(
                "it is not known whether Slurm accepted the job before you interrupted ddplaunch: "
                f"{error.message}",
                hint="`ddplaunch list --to slurm` shows it, if Slurm has it",
            ) from error
        if job_id is not None:
            queries.commands.run("scancel", str(job_id))
            self.records.save(dataclasses.replace(record, job_id=job_id, cluster=queries.commands.cluster))

    # --- status

    def job(self, handle: Handle) -> Job:
        return self._job(self._snapshots.at(*parse_handle(handle)))

    def jobs(self) -> list[Job]:
        jobs = [self._job(snapshot) for snapshot in self._snapshots.at_all()]
        return sorted(jobs, key=lambda job: job.submitted, reverse=True)

    def known(self) -> list[Known]:
        return [
            Known(
                handle(record.job_id, record.cluster),
                f"{record.name}{record.state and ', '}{record.state}",
                record.name,
                record.at,
            )
            for record in self.records.all()
            if record.job_id is not None
        ]

    def _job(self, snapshot: Snapshot) -> Job:
        """Return the job from Slurm's state and the hub's status of the same attempt."""
        slurm_job, record, hub_status = snapshot.slurm_job, snapshot.record, snapshot.hub_status()
        job = Job(
            handle(snapshot.job_id, snapshot.cluster),
            State.RUNNING,
            snapshot.submitted or time.time(),
            snapshot.name,
            detail=snapshot.note,
            status=hub_status,
            restarts=(slurm_job.restarts or 0) if slurm_job else 0,
            earlier=snapshot.earlier(),
            sweep=record.sweep if record else {},
        )
        if slurm_job is None or snapshot.ended:
            return self._ended(job, snapshot)
        if record is not None and record.state:  # it was requeued after it had ended
            self._snapshots.remember(snapshot, record.without_end())
        # If the hub is up, Slurm's state is out of date.
        if slurm_job.state in outcomes.WAITING and hub_status is None:
            facts = self.queries(snapshot.cluster).partition_facts(slurm_job.partition)
            why = pending.explain(slurm_job, facts)
            text = "; ".join(filter(None, [why.text, snapshot.note]))
            return dataclasses.replace(
                job, state=State.PENDING, detail=text, hint=why.hint, never_starts=why.never
            )
        if hub_status is None or slurm_job.state in ("SUSPENDED", "STOPPED"):
            detail = f"its state in Slurm is {slurm_job.state} on {slurm_job.node_list}"
            hub_comes = slurm_job.state == "RUNNING" and not snapshot.is_foreign
            missing = outcomes.of_folder(snapshot.unseen_folder, slurm_job.node_list)
            missing = missing or ("its hub is not up yet" if hub_comes else "")
            return dataclasses.replace(job, detail="; ".join(filter(None, [detail, missing, snapshot.note])))
        if slurm_job.state == "COMPLETING":
            return dataclasses.replace(job, detail="Slurm waits for its nodes to clean up after it")
        return with_silence(job, SILENT_AFTER_AFAR, time.time())

    def _ended(self, job: Job, snapshot: Snapshot) -> Job:
        slurm_job, record, hub_status = snapshot.slurm_job, snapshot.record, job.status
        cancelled = (record is not None and record.cancelled) or _asked_for_end(snapshot)
        last_update = hub_status.updated if hub_status else None
        verdicts = record.verdicts if record else []
        if slurm_job is not None:
            by = _user(slurm_job.ended_by)
            outcome = outcomes.outcome(slurm_job, hub_status, cancelled=cancelled, me=os.getuid(), by=by)
            failure = None if hub_status is not None else self._not_started(slurm_job, snapshot.cluster)
            # While Slurm still holds the job, its end time is the moment at which the time limit will be
            # over.
            ended = last_update if snapshot.lingers else slurm_job.ended
            verdicts = self._verdicts(slurm_job, snapshot.cluster)
            if failure is not None:
                outcome, verdicts = failure.outcome, [failure.verdict]
        elif record is not None and record.state:
            outcome = record.outcome
            ended = record.ended or record.at
        else:
            outcome = outcomes.forgotten(hub_status, cancelled=cancelled)
            ended = last_update
        no_exit_code = hub_status is None or hub_status.exit_code is None
        if no_exit_code and outcome.state not in (State.SUCCEEDED, State.CANCELLED):
            if not outcome.detail:
                outcome = outcome._replace(detail=self._last_words(snapshot))
            verdicts = verdicts or outcomes.of_gates(snapshot.folder)
        if hub_status is None and slurm_job is not None and not outcome.detail:
            missing = outcomes.of_folder(snapshot.unseen_folder, slurm_job.node_list)
            outcome = outcome._replace(detail=missing)
        job = dataclasses.replace(
            job,
            state=outcome.state,
            exit_code=outcome.exit_code,
            detail=outcome.detail,
            # Slurm's times are whole seconds, so a short job would have ended before it was submitted.
            ended=max(ended or time.time(), job.submitted),
            verdicts=tuple(verdicts),
        )
        if record is not None and not record.state:
            workdir = (slurm_job and slurm_job.workdir) or record.workdir
            self._snapshots.remember(snapshot, dataclasses.replace(record, workdir=workdir).with_end(job))
        if snapshot.lingers and slurm_job is not None:
            text = f"Slurm has not released {slurm_job.node_list} yet: there it is still {slurm_job.state}"
            job = dataclasses.replace(job, lingers=text)
        return job

    def _last_words(self, snapshot: Snapshot) -> str:
        """Return why its script gave up. If the script is not ours, return the last line that it printed."""
        if snapshot.is_ours or snapshot.slurm_job is None:
            return outcomes.of_script(snapshot.output)
        output = self._output(snapshot)
        words = outcomes.of_script(output) or "".join(lines.last_lines(output, 1) if output else [])
        return words and f"its last line: {words}"

    def _not_started(self, slurm_job: SlurmJob, cluster: str) -> outcomes.LaunchFailure | None:
        """Return why its batch script never started; None if the job ended in another way."""
        if outcomes.number(slurm_job) is None:
            return None
        output = self.queries(cluster).output_file(slurm_job)
        return outcomes.explained(slurm_job, str(output or ""))

    def _verdicts(self, slurm_job: SlurmJob, cluster: str) -> list[Verdict]:
        numbers: list[int] = []
        names = ""
        if slurm_job.state == "NODE_FAIL" and slurm_job.node_list:
            numbers, names = self.queries(cluster).failed_nodes(slurm_job.node_list)
        return outcomes.verdicts(slurm_job, numbers, names)

    # --- logs, cancel, collect

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Yield the output. Raises ClusterError if this machine cannot read it."""
        path = parse_handle(handle)
        snapshot = self._snapshots.at(*path)
        output = self._output(snapshot)
        unseen = output is not None and not output.exists() and snapshot.unseen_folder is not None
        if output is None or unseen or not _is_visible(output):
            raise ClusterError(
                f"the output of {handle} cannot be read on this machine: "
                + (str(output) if output else "Slurm does not say where it is"),
                hint="run this as the job's owner, on a machine that shares this folder with the nodes",
            )
        if output.exists() and not output.is_file():
            raise ClusterError(
                f"the output of {handle} is not kept, because its batch script prints to {output}",
                hint="`#SBATCH --output=FILE` names a file for it",
            )
        yield from lines.lines(
            lines.GrowingFile(output),
            wanted,
            follow=follow,
            alive=lambda: not self._snapshots.at(*path).ended,
            poll=_POLL,
        )

    def _output(self, snapshot: Snapshot) -> Path | None:
        """Return the file to which all nodes print: ours, or the one to which Slurm writes for any batch
        script.
        """
        ours, slurm_job = snapshot.output, snapshot.slurm_job
        if slurm_job is None or (ours is not None and ours.is_file()):
            return ours
        # This also applies to a script of ours: `slurm.extra`, or sbatch's own options, may name another
        # file.
        found = self.queries(snapshot.cluster).output_file(slurm_job)
        return found or (ours if snapshot.is_ours else None)

    def cancel(self, handle: Handle) -> Job:
        """Cancel the job and wait for its end. Raises ClusterError if Slurm refuses, or if the job does not
        end.
        """
        path = parse_handle(handle)
        snapshot = self._snapshots.at(*path)
        job = self._job(snapshot)
        if job.state.ended:
            return job
        if snapshot.record is not None:
            snapshot.record.mark_cancelled()
        _tell_hub(snapshot)
        # Slurm sends SIGTERM to all processes of the job, and SIGKILL only after KillWait. In between, the
        # supervisors collect the evidence.
        answer = self.queries(snapshot.cluster).commands.ask("scancel", str(snapshot.job_id))
        if answer.code != 0 and "Invalid job id" not in answer.err and "already complet" not in answer.err:
            raise ClusterError(
                f"Slurm does not cancel {handle}: {answer.last_line}",
                hint=f"`scontrol show job {snapshot.job_id}` shows its owner and its state",
            )
        deadline = time.monotonic() + STOP
        while not (snapshot := self._snapshots.at(*path, fresh=True)).ended:
            if time.monotonic() > deadline:
                state = snapshot.slurm_job.state if snapshot.slurm_job else "unknown"
                raise ClusterError(
                    f"{handle} has not ended {STOP:.0f} s after scancel: its state in Slurm is {state}",
                    hint=f"an epilog or the kernel may hold it: `scontrol show job {snapshot.job_id}`",
                )
            time.sleep(0.5)
        return self._job(snapshot)

    def collect(self, handle: Handle) -> Bundle | None:
        snapshot = self._snapshots.at(*parse_handle(handle))
        queries = self.queries(snapshot.cluster)
        bundle = collect(snapshot, queries)
        if bundle is None and snapshot.is_foreign and snapshot.slurm_job is not None:
            inside = evidence.ask_hub_inside(snapshot.slurm_job, queries.commands)
            return inside or evidence.collect_from_outside(snapshot.slurm_job, queries.commands)
        return bundle

    def outputs(self, handle: Handle) -> list[Outputs]:
        snapshot = self._snapshots.at(*parse_handle(handle))
        folder = snapshot.folder
        if folder is None or not snapshot.is_ours:
            raise NotFoundError(
                f"ddplaunch does not know where {handle} writes: it did not start the job, or this machine "
                "does not see the job's folder"
            )
        besides = [path for path in (snapshot.output,) if path is not None]
        return outputs.of_job(folder, snapshot.submitted or 0.0, besides)

    def remains(self, handle: Handle) -> Remains | None:
        """Return what is left of a job: its folder, its output, and what is kept of it here; None if it is
        not ours.
        """
        snapshot = self._snapshots.at(*parse_handle(handle))
        if not _is_made_here(snapshot):
            return None
        left = outputs.counted(*self._left(snapshot))
        home = snapshot.folder
        if home is None or not home.parent.is_dir():
            text = (
                f"the job's folder is not on this machine, and stays: {home or 'Slurm has forgotten where'}"
            )
            left += Remains(stays=(text,))
        return left

    def delete(self, handle: Handle) -> None:
        snapshot = self._snapshots.at(*parse_handle(handle))
        if snapshot.lingers:
            raise ClusterError(
                f"{handle} has ended, but Slurm still waits for its nodes, which may write to its folder",
                hint="`ddplaunch status` shows when they are released",
            )
        if _is_made_here(snapshot):
            outputs.remove(*self._left(snapshot))  # the record goes last: without it the rest is hard to find

    def _left(self, snapshot: Snapshot) -> list[Path]:
        home, output, record = snapshot.folder, snapshot.output, snapshot.record
        paths = [path for path in (home, output) if path is not None]
        return [*paths, Path(record.script).parent] if record is not None else paths

    def close(self) -> None:
        """Wait for its queries to finish."""
        self._snapshots.close()


def handle(job_id: int, cluster: str = "") -> Handle:
    """Return the handle of a job of that cluster; without a name it is the local one."""
    return Handle("slurm", f"{cluster}/{job_id}" if cluster else str(job_id))


def _refuse_what_never_starts(wanted: pending.Requested, queries: Queries) -> None:
    """Raise ClusterError for a job that is beyond a limit of its partition."""
    problems = pending.problems(wanted, queries.partitions())
    if problems:
        raise ClusterError(
            "Slurm cannot run this job:" + "".join(f"\n    {text}" for text in problems),
            hint="nothing was submitted; `sinfo --format '%P %l %s %D'` shows partitions and limits",
        )


def _is_made_here(snapshot: Snapshot) -> bool:
    """Whether ddplaunch has made the job's folder: other people's scripts make folders with that name,
    too.
    """
    home = snapshot.folder
    return snapshot.record is not None or (home is not None and (home / Files.PLAN).is_file())


def _is_visible(output: Path) -> bool:
    """Whether this machine can read the file, or will be able to once it exists."""
    try:
        return output.parent.is_dir() and (not output.exists() or os.access(output, os.R_OK))
    except OSError:
        return False


def parse_handle(handle: Handle) -> tuple[int, str]:
    """Return job id and cluster. Raises UsageError."""
    match = re.fullmatch(r"(?:(\w[\w.-]*)/)?(\d+)", handle.path)
    if match is None:
        raise UsageError(
            f"{handle} is not the handle of a Slurm job",
            hint="slurm://1234 is job 1234, slurm://mycluster/1234 is job 1234 of cluster mycluster",
        )
    return int(match[2]), match[1] or ""


def _tell_hub(snapshot: Snapshot) -> None:
    """Leave a note in the job's folder, if it can be seen from here, of who asks for the job's end."""
    if snapshot.folder is not None and snapshot.folder.is_dir():
        asked = StopRequest(signal.SIGTERM, "`ddplaunch cancel`", final=True)
        with contextlib.suppress(OSError):
            codec.write(str(snapshot.folder / Files.STOP_REQUEST), asked)


def _asked_for_end(snapshot: Snapshot) -> bool:
    """Whether `ddplaunch cancel` has left that note, on whatever machine."""
    home = snapshot.folder
    return home is not None and files.read_if_valid(StopRequest, home / Files.STOP_REQUEST) is not None


def _user(uid: int | None) -> str:
    """Return the user's name; empty if it is unknown here."""
    with contextlib.suppress(KeyError):
        return "" if uid is None else pwd.getpwuid(uid).pw_name
    return ""


def jobs_after(specs: Sequence[JobSpec], handles: Sequence[Handle]) -> list[JobSpec]:
    """Return `specs` as jobs that start when the jobs of `handles` have succeeded.

    Raises UsageError for a job that has already failed: Slurm forgets such a job, and would then start these.
    Raises NotFoundError for an unknown job, and ClusterError if Slurm does not answer.
    """
    for spec in specs:
        _check_dependency(spec, handles)
    backend = connect()
    ids = []
    for handle in handles:
        before = backend.job(handle)
        if before.state.ended and before.state is not State.SUCCEEDED:
            raise UsageError(
                f"--after: {handle} did not succeed ({before.state}), so this job would never start",
                hint=f"`ddplaunch diagnose {handle}` says why; submit that job again first",
            )
        ids += [] if before.state.ended else [str(parse_handle(handle)[0])]
    return [_with_dependency(spec, f"afterok:{':'.join(ids)}") if ids else spec for spec in specs]


def _check_dependency(spec: JobSpec, handles: Sequence[Handle]) -> None:
    """Raise UsageError for anything that Slurm would misunderstand."""
    given = spec.slurm.dependency
    if given and "?" in given:
        raise UsageError(
            f"--after: slurm.dependency is {given}, and Slurm allows no other condition next to a `?`",
            hint=f"write all of them there, such as {given}?afterok:ID",
        )
    wanted = pending.requested("\n".join(f"#SBATCH {option}" for option in spec.slurm.extra), os.environ)
    for handle in handles:
        if parse_handle(handle)[1] != wanted.clusters:  # there, that id is another job's
            here = f"cluster {wanted.clusters}" if wanted.clusters else "the cluster of this machine"
            raise UsageError(
                f"--after: {handle} is a job on another cluster, but this job goes to {here}",
                hint="a job waits for jobs of its own cluster; `slurm.extra: [--clusters=NAME]` chooses it",
            )


def _with_dependency(spec: JobSpec, condition: str) -> JobSpec:
    text = ",".join(filter(None, [spec.slurm.dependency, condition]))
    return spec.model_copy(update={"slurm": spec.slurm.model_copy(update={"dependency": text})})
