"""The Kubernetes backend: combines a job's objects in the API with its hub's status."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Phase, Verdict
from ddplaunch.agent.text.quantities import count
from ddplaunch.backends import folder, lines, outputs
from ddplaunch.backends.job import (
    BY_CANCEL,
    SILENT_AFTER_AFAR,
    Earlier,
    Handle,
    Job,
    Known,
    Outcome,
    Remains,
    Selection,
    State,
    with_silence,
)
from ddplaunch.backends.kubernetes import (
    deletion,
    evidence,
    foreign_evidence,
    node_status,
    objects,
    outcomes,
    pods,
    submission,
    volume,
)
from ddplaunch.backends.kubernetes.api import Api, RefusedError
from ddplaunch.backends.kubernetes.output import Output
from ddplaunch.backends.kubernetes.queries import ApiState, Queries
from ddplaunch.backends.kubernetes.snapshot import Snapshot, Snapshots
from ddplaunch.backends.kubernetes.submission import Records, Submission, unseen
from ddplaunch.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.outputs import Outputs
    from ddplaunch.render import Rendered

_POLL = 0.1
_STUCK = (
    "Kubernetes keeps the pods of a machine that does not answer until it is back or its Node is removed; "
    "`kubectl delete pod --force` removes one, which is safe once the machine is off"
)


def connect() -> KubernetesBackend:
    """Return the backend of kubectl's current cluster, without asking the cluster anything."""
    return KubernetesBackend(folder.state_folder())


class KubernetesBackend:
    """A `Backend`. Handles are `kubernetes://NAMESPACE/NAME`."""

    def __init__(self, root: Path) -> None:
        self.records = Records(root)
        self.api = Api()
        self.queries = Queries(self.api)
        self._looked_for: set[tuple[str, int]] = set()  # uid and attempt of hubs that have ended

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self.api, self.queries)

    def close(self) -> None:
        """Wait for its threads, and close the connections."""
        self._snapshots.close()
        self.api.close()

    # --- submit

    def submit(self, rendered: Rendered) -> Handle:
        server = self.api.place.server
        job = submission.send_counted(self.api, self.queries, rendered, self.records.all(server))
        sent = Submission(server, job.namespace, job.name, job.uid, time.time(), named=job.family)
        self.records.begin(sent)
        return handle(job.namespace, job.name)

    def try_out(self, rendered: Rendered) -> str:
        """Return that the server would create the job. Raises ClusterError if it would not."""
        submission.try_out(self.api, submission.documents(rendered))
        return f"{self.api.place.server} would create it"

    # --- status

    def job(self, handle: Handle) -> Job:
        namespace, name = self._parse(handle)
        snapshot, record = self._snapshots.at(namespace, name), self._sent(namespace, name)
        if record is not None and _is_of(record, snapshot.state):
            self._keep_end(snapshot, record)
        return self._job(snapshot, record)

    def _keep_end(self, snapshot: Snapshot, record: Submission) -> None:
        """Keep how an attempt ends while its hub or the hub's log is there: a retry deletes both."""
        state, status = snapshot.state, snapshot.hub_status
        kept = self.records.attempts(record)
        if status is not None and status.exit_code is not None:
            kept.note(status)
        begun = snapshot.attempt > state.attempt  # by the hub, whose log has the bundles of those before
        if (record.uid, snapshot.attempt) in self._looked_for or not (begun or evidence.is_over(state)):
            return
        self._looked_for.add((record.uid, snapshot.attempt))
        if begun or objects.is_elastic(state.job) or kept.bundle(state.attempt) is None:
            for bundle in evidence.printed_bundles(self.api, state):
                self.records.keep(record, bundle)

    def jobs(self) -> list[Job]:
        place = self.api.place
        records = {(each.namespace, each.name): each for each in self.records.all(place.server)}
        found = {}
        for namespace in dict.fromkeys([place.namespace, *(key[0] for key in records)]):
            try:
                there = self.queries.all(namespace)
            except RefusedError:
                if namespace == place.namespace:
                    raise
                continue  # this user may no longer list it
            mine = {name: each for (of, name), each in records.items() if of == namespace}
            for state in there:
                found[namespace, state.name] = self._job(Snapshot(state), mine.pop(state.name, None))
            found |= {(namespace, name): self._gone(each) for name, each in mine.items()}
        return sorted(found.values(), key=lambda job: job.submitted, reverse=True)

    def known(self) -> list[Known]:
        return [
            Known(handle(each.namespace, each.name), each.state or "sent from here", each.family, each.at)
            for each in self.records.all()
        ]

    def _job(self, snapshot: Snapshot, record: Submission | None) -> Job:
        state = snapshot.state
        if state.owner is None:
            if record is None:
                raise _not_found(state.namespace, state.name)
            return self._gone(record)
        if record is not None and not _is_of(record, state):
            record = None  # another job has that name now
        nodes, present = snapshot.nodes, self._present(snapshot, record)
        groups = node_status.troubled(nodes)
        job = Job(
            handle(state.namespace, state.name),
            State.RUNNING,
            objects.created(state.owner),
            state.name,
            sweep=objects.sweep(state.owner),
            restarts=present,
            earlier=self._earlier(record, present),
        )
        outcome = outcomes.outcome(state, time.time(), groups)
        if outcome is not None:
            return self._ended(job, snapshot, outcome, groups, record)
        detail, hint = _standing(state, nodes, groups)
        if objects.spec(state.owner).get("suspend"):
            why, hint = pods.suspended(state.owner, state.workload)
            return dataclasses.replace(
                job, state=State.PENDING, detail=_joined(why, snapshot.note), hint=hint
            )
        if snapshot.note:
            hint = hint or "nothing is lost: the output appears when the API server answers again"
        verdicts = tuple(outcomes.verdicts(state, groups, snapshot.machines))
        job = dataclasses.replace(job, detail=_joined(*detail, snapshot.note), hint=hint, verdicts=verdicts)
        if snapshot.hub_status is None and not outcomes.has_begun(nodes):
            if not objects.is_ours(state.owner) and objects.status(state.owner).get("ready"):
                # Its pods have no gate and no hub, and may have no numbers.
                what = "not started by ddplaunch, which sees only that its pods run"
                hint = f"`ddplaunch diagnose {job.handle}` looks at its ranks"
                return dataclasses.replace(job, detail=_joined(what, snapshot.note), hint=hint)
            waiting = detail or [node_status.startup(nodes)]
            return dataclasses.replace(job, state=State.PENDING, detail=_joined(*waiting, snapshot.note))
        job = dataclasses.replace(job, status=snapshot.hub_status)
        job = with_silence(job, SILENT_AFTER_AFAR, time.time())
        status = node_status.status(state.name, present, nodes, snapshot.hub_status, time.time())
        if status.verdicts:
            known = outcomes.enriched(status.verdicts, groups, snapshot.machines)
            status = dataclasses.replace(status, verdicts=known)
        return dataclasses.replace(job, status=status)

    def _ended(
        self,
        job: Job,
        snapshot: Snapshot,
        outcome: Outcome,
        groups: Sequence[node_status.Group],
        record: Submission | None,
    ) -> Job:
        state = snapshot.state
        end = self.records.attempts(record).end(job.restarts) if record is not None else None
        if end is not None and outcome.exit_code is None:  # the pods that would tell it are gone
            outcome = outcome._replace(exit_code=end.exit_code, detail="")
        if record is not None and record.cancelled:  # by a command that did not see it end
            outcome = outcomes.as_cancelled(outcome)
        verdicts: list[Verdict] = []
        if outcome.state is not State.SUCCEEDED:
            own = outcomes.termination_message(state.pods).verdicts or (end.verdicts if end else [])
            known = self._explained(record, job.restarts, own)
            verdicts = (
                outcomes.enriched(known, groups, snapshot.machines, own)
                if own
                else outcomes.verdicts(state, groups, snapshot.machines)
            )
        job = dataclasses.replace(
            job,
            state=outcome.state,
            exit_code=outcome.exit_code,
            detail=outcome.detail,
            ended=outcome.ended or time.time(),
            verdicts=tuple(verdicts),
        )
        if outcomes.lingers(state, time.time()):
            job = dataclasses.replace(job, lingers=node_status.left(snapshot.nodes, state.pods))
        if state.job is not None:
            status = node_status.status(state.name, job.restarts, snapshot.nodes, None, time.time())
            passed = node_status.gate_passed(state.pods)
            status = dataclasses.replace(status, phase=Phase.ENDED, waiting_for=[], gate_passed=passed)
            job = dataclasses.replace(job, status=node_status.with_end(status, end))
        if record is not None and not record.state:
            self.records.save(record.with_end(job))
        return job

    def _present(self, snapshot: Snapshot, record: Submission | None) -> int:
        """Return the number of the present attempt, or of the last one."""
        is_elastic = record is not None and objects.is_elastic(snapshot.state.job)
        return max(snapshot.attempt, self.records.attempts(record).last if record and is_elastic else 0)

    def _explained(self, record: Submission | None, attempt: int, own: list[Verdict]) -> list[Verdict]:
        """Return the agents' `own` verdicts, or those that were kept earlier, when the API could explain
        them.
        """
        if record is None or not any(map(outcomes.says_node_is_silent, own)):
            return own
        kept = self.records.bundle(record, attempt)
        return kept.verdicts if kept is not None else own

    def _earlier(self, record: Submission | None, present: int) -> tuple[Earlier, ...]:
        """Return the attempts before the present one. For a job that others submitted, nothing is kept."""
        return unseen(present) if record is None else self.records.attempts(record).earlier(present)

    def _gone(self, record: Submission) -> Job:
        """Return the job from its record, after it was deleted from the cluster."""
        outcome = record.outcome if record.state else outcomes.deleted(cancelled=record.cancelled)
        ended = record.ended or time.time()
        job = Job(handle(record.namespace, record.name), outcome.state, record.at, record.name, ended)
        last = max(record.attempt, self.records.attempts(record).last)
        job = dataclasses.replace(
            job,
            exit_code=outcome.exit_code,
            detail=outcome.detail,
            verdicts=tuple(record.verdicts),
            restarts=last,
            earlier=self._earlier(record, last),
        )
        if not record.state:
            self.records.save(record.with_end(job))
        return job

    # --- logs, cancel, collect

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Yield the output; of a job of others, that of all containers.

        Raises NotFoundError if there is no such job, or if it was deleted, because its logs go with it, and
        UsageError if nodes or ranks are wanted of a job whose containers we do not know.
        """
        path = self._parse(handle)
        state = self._snapshots.at(*path).state
        if state.owner is None:
            if self._sent(*path) is None:
                raise _not_found(*path)
            raise NotFoundError(
                f"the output of {handle} is gone: logs are deleted with the job's pods",
                hint="`ddplaunch diagnose` shows the evidence that was kept, if there is any",
            )
        has_gate = any(objects.GATE in objects.containers(pod) for pod in state.pods)
        is_foreign = not (has_gate or objects.is_ours(state.owner))
        if is_foreign and not (wanted.nodes is None and wanted.ranks is None):
            raise UsageError(
                f"{handle} was not started by ddplaunch, which does not know which containers have its ranks",
                hint=f"`ddplaunch logs {handle}` shows what all its containers print",
            )

        def over() -> bool:
            return self._snapshots.at(*path).ended

        source = Output(
            self.api,
            lambda: self._snapshots.at(*path).state,
            wanted,
            follow=follow,
            foreign=is_foreign,
            over=over,
            wake=lambda: self._snapshots.wake(*path),
            keep=lambda bundle: self._keep(path, bundle),
        )
        yield from lines.lines(source, wanted, follow=follow, alive=lambda: not over(), poll=_POLL)

    def _keep(self, path: tuple[str, str], bundle: Bundle) -> None:
        record = self._sent(*path)
        if record is not None and _is_of(record, self._snapshots.at(*path).state):
            self.records.keep(record, bundle)

    def cancel(self, handle: Handle) -> Job:
        """Stop the job, keep its evidence, and delete its objects.

        Raises UsageError for a Job that is not ours, and ClusterError if one of its objects remains.
        """
        namespace, name = self._parse(handle)
        record = self._sent(namespace, name)
        snapshot = self._snapshots.at(namespace, name, fresh=True)
        job = self._job(snapshot, record)
        state = snapshot.state
        if job.state.ended or state.owner is None:
            return job
        if not objects.is_ours(state.owner):
            kind = state.owner["kind"].lower()
            raise UsageError(
                f"{handle} was not started by ddplaunch, and to cancel it would delete it and its logs",
                hint=f"nothing was changed; `kubectl delete {kind} {name} -n {namespace}` deletes it",
            )
        if record is None or not _is_of(record, state):
            server, uid = self.api.place.server, objects.uid(state.owner)
            record = Submission(server, namespace, name, uid, job.submitted)
        record = dataclasses.replace(record, cancelled=True)
        self.records.save(record)
        bundle = deletion.cancel(self.api, state)
        deletion.wait(self.api, self.queries, state.owner, namespace)
        if bundle is not None:
            self.records.keep(record, bundle)
        code = bundle.exit_code if bundle else None
        done = dataclasses.replace(
            job,
            state=State.CANCELLED,
            exit_code=code,
            ended=time.time(),
            detail=BY_CANCEL,
            hint="",
            status=None,
        )
        done = dataclasses.replace(done, verdicts=tuple(bundle.verdicts if bundle else ()))
        self.records.save(record.with_end(done))
        return dataclasses.replace(done, detail=deletion.helm(state.owner))

    def collect(self, handle: Handle) -> Bundle | None:
        namespace, name = self._parse(handle)
        record = self._sent(namespace, name)
        snapshot = self._snapshots.at(namespace, name)
        state = snapshot.state
        if state.owner is None:
            if record is None:
                raise _not_found(namespace, name)
            last = max(record.attempt, self.records.attempts(record).last)
            return self.records.bundle(record, last)
        if record is not None and not _is_of(record, state):
            record = None
        bundle = self._collected(snapshot, record)
        if bundle is None and record is None and not (snapshot.ended or objects.is_ours(state.owner)):
            return foreign_evidence.of_owner(self.api, namespace, state.owner)
        return bundle

    def _collected(self, snapshot: Snapshot, record: Submission | None) -> Bundle | None:
        state = snapshot.state
        bundle = None if snapshot.ended else evidence.diagnose(self.api, state)
        if bundle is None:
            bundle = evidence.left(self.api, state)
        kept = bundle is None  # the hub's pod is gone; a command that followed its log has kept the bundle
        if bundle is None and record is not None:
            bundle = self.records.bundle(record, self._present(snapshot, record))
        if bundle is None or (kept and not snapshot.ended):
            return bundle
        own = bundle.verdicts
        unknown = set(range(bundle.nodes)) - {each.node for each in bundle.check_ins}
        snapshot, reports = self._snapshots.gate_reports(snapshot, unknown)
        groups = node_status.troubled(snapshot.nodes)
        if kept:  # its verdicts may have been enriched before
            groups = [group for group in groups if group.problem.verdict is not None]

        def enriched(known: Bundle) -> Bundle:
            new = [each for each in reports if each not in known.events]
            return dataclasses.replace(
                known,
                verdicts=outcomes.enriched(known.verdicts, groups, snapshot.machines, own),
                events=sorted([*known.events, *new], key=lambda event: event.at),
            )

        if record is not None and snapshot.ended:
            return self.records.keep(record, bundle, enriched)
        return enriched(bundle)

    # --- what the ranks wrote

    def outputs(self, handle: Handle) -> list[Outputs]:
        """Return what the ranks wrote to the volume that the job file names. Raises NotFoundError."""
        state, where = self._volume(handle)
        return list(volume.outputs(self.api, state, where))

    def outputs_unseen(self, handle: Handle) -> list[Outputs]:
        where = volume.place(self._snapshots.at(*self._parse(handle)).state.owner)
        return [] if where is None else [volume.unseen(where)]

    def bring_outputs(
        self, handle: Handle, to: Path, check: Callable[[Sequence[Outputs]], None]
    ) -> list[Outputs]:
        state, where = self._volume(handle)
        return list(volume.outputs(self.api, state, where, to, check))

    def _volume(self, handle: Handle) -> tuple[ApiState, volume.Place]:
        namespace, name = self._parse(handle)
        state = self._snapshots.at(namespace, name).state
        if state.owner is None:
            record = self._sent(namespace, name)
            if record is None:
                raise _not_found(namespace, name)
            raise NotFoundError(
                f"{handle} is gone from the cluster, which no longer says what volume it wrote to",
                hint=f"with `outputs` its files are on that volume, in {name}-{record.uid[:8]}",
            )
        where = volume.place(state.owner)
        if where is None and not objects.is_ours(state.owner):
            raise NotFoundError(f"{handle} was not started by ddplaunch, which does not know where it writes")
        if where is None:
            raise NotFoundError(
                f"{handle} names no volume under `outputs`: files that its ranks wrote in their folder are "
                "lost with their pods",
                hint="files on its `volumes` are still there; see docs/how-to/where-code-runs.md",
            )
        return state, where

    # --- delete

    def remains(self, handle: Handle) -> Remains | None:
        """Return the job's objects, and what is kept of it here; None for a Job that is not ours."""
        namespace, name = self._parse(handle)
        record, state = self._sent(namespace, name), self._snapshots.at(namespace, name).state
        parts: list[str] = []
        if record is not None and state.owner is not None and not _is_of(record, state):
            stays = f"the {state.owner['kind']} that has this name now is another submission, and is kept"
            return outputs.counted(*self.records.paths(record)) + Remains(stays=(stays,))
        if state.owner is not None:
            if not objects.is_ours(state.owner):
                return None
            parts = deletion.parts(self.api, state.owner, namespace)
        elif record is None:
            raise _not_found(namespace, name)
        if state.pods:
            parts.append(f"the output of its {count(len(state.pods), 'pod')}")
        where = volume.place(state.owner)
        left = Remains(tuple(parts), stays=() if where is None else (volume.stays(where),))
        return left + outputs.counted(*self.records.paths(record)) if record is not None else left

    def delete(self, handle: Handle) -> None:
        namespace, name = self._parse(handle)
        record, state = self._sent(namespace, name), self._snapshots.at(namespace, name, fresh=True).state
        is_of = record is None or _is_of(record, state)
        if state.owner is not None and objects.is_ours(state.owner) and is_of:
            deletion.begin(self.api, state.owner, namespace)
            deletion.wait(self.api, self.queries, state.owner, namespace)
        if record is not None:
            outputs.remove(*self.records.paths(record))

    # --- names

    def _sent(self, namespace: str, name: str) -> Submission | None:
        return self.records.find(self.api.place.server, namespace, name)

    def _parse(self, handle: Handle) -> tuple[str, str]:
        """Return namespace and name. Raises UsageError."""
        match = re.fullmatch(r"(?:([a-z0-9][-a-z0-9]*)/)?([a-z0-9][-.a-z0-9]*)", handle.path)
        if match is None:
            raise UsageError(
                f"{handle} is not the handle of a Kubernetes job",
                hint="kubernetes://NAMESPACE/NAME, as `ddplaunch submit` prints it; KIND/NAME and labels are "
                "for `ddplaunch diagnose` alone",
            )
        return match[1] or self.api.place.namespace, match[2]


def handle(namespace: str, name: str) -> Handle:
    """Return the handle of a job."""
    return Handle("kubernetes", f"{namespace}/{name}")


def _is_of(record: Submission, state: ApiState) -> bool:
    """Whether the record belongs to this job, and not to an earlier one with its name."""
    return record.uid == objects.uid(state.owner or {})


def _standing(
    state: ApiState, nodes: Sequence[node_status.Node], groups: Sequence[node_status.Group]
) -> tuple[list[str], str]:
    """Return what prevents a job that goes on from running, in sentences, and what to do about it."""
    detail = [group.sentence for group in groups]
    hint = next((group.problem.hint for group in groups), "")
    if objects.is_being_deleted(state.owner or {}):
        return [*detail, "it is being deleted"], hint
    if state.waits_for_pods and (pods := node_status.left(nodes, state.pods)):
        return [f"the next attempt waits for pods of this one: {pods}"], _STUCK
    return detail, hint


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _not_found(namespace: str, name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no job {name} in namespace {namespace}",
        hint="`ddplaunch list --to kubernetes` shows the jobs in your context's namespace, and all that you "
        "submitted",
    )
