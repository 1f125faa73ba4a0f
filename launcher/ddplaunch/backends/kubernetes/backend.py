"""The Kubernetes backend: what the API server says of a job, and what the job says itself, made one."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import Bundle, Phase, Verdict
from ddplaunch.backends import folder, lines
from ddplaunch.backends.job import HEARD_AFAR, Handle, Job, Selection, State, with_silence
from ddplaunch.backends.kubernetes import (
    deletion,
    evidence,
    node_status,
    objects,
    outcomes,
    pending,
    submission,
)
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.output import Output
from ddplaunch.backends.kubernetes.queries import ApiState, Queries
from ddplaunch.backends.kubernetes.record import Records, Submission
from ddplaunch.backends.kubernetes.snapshot import Snapshot, Snapshots
from ddplaunch.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from ddplaunch.render.rendered import Rendered

STOP = 90.0
"""Seconds for a job to end in order, once its hub was told to: the ranks may write a checkpoint."""
_POLL = 0.1


def connect() -> KubernetesBackend:
    """The backend of the cluster that kubectl would reach. Nothing is asked yet."""
    return KubernetesBackend(folder.state_folder())


class KubernetesBackend:
    """A `Backend`. Handles are `kubernetes://NAMESPACE/NAME`."""

    def __init__(self, root: Path) -> None:
        self.records = Records(root)
        self.api = Api()
        self.queries = Queries(self.api)

    @cached_property
    def _looks(self) -> Snapshots:
        return Snapshots(self.api, self.queries)

    def close(self) -> None:
        """Leave no thread and no connection behind."""
        self._looks.close()
        self.api.close()

    # --- submit

    def submit(self, rendered: Rendered) -> Handle:
        sent = submission.send(self.api, self.queries, submission.documents(rendered))
        server = self.api.place.server
        self.records.begin(Submission(server, sent.namespace, sent.name, sent.uid, time.time()))
        return handle(sent.namespace, sent.name)

    # --- look

    def job(self, handle: Handle) -> Job:
        namespace, name = self._parse(handle)
        return self._job(self._looks.at(namespace, name), self._sent(namespace, name))

    def jobs(self) -> list[Job]:
        place = self.api.place
        sent = {(each.namespace, each.name): each for each in self.records.all(place.server)}
        found = {}
        for namespace in dict.fromkeys([place.namespace, *(key[0] for key in sent)]):
            try:
                there = self.queries.all(namespace)
            except RefusedError:
                if namespace == place.namespace:
                    raise
                continue  # one that we may not see any more
            mine = {name: each for (of, name), each in sent.items() if of == namespace}
            for seen in there:
                found[namespace, seen.name] = self._job(Snapshot(seen), mine.pop(seen.name, None))
            found |= {(namespace, name): self._gone(each) for name, each in mine.items()}
        return sorted(found.values(), key=lambda job: job.submitted, reverse=True)

    def handles(self) -> list[tuple[Handle, str]]:
        return [
            (handle(each.namespace, each.name), each.state or "sent from here") for each in self.records.all()
        ]

    def _job(self, look: Snapshot, sent: Submission | None) -> Job:
        seen = look.seen
        if seen.owner is None:
            if sent is None:
                raise _not_found(seen.namespace, seen.name)
            return self._gone(sent)
        if sent is not None and not _is_of(sent, seen):
            sent = None  # another job has the name now
        nodes = look.nodes
        groups = node_status.troubled(nodes)
        job = Job(handle(seen.namespace, seen.name), State.RUNNING, objects.created(seen.owner), seen.name)
        outcome = outcomes.outcome(seen, time.time(), groups)
        if outcome is not None:
            return self._ended(job, look, outcome, groups, sent)
        detail = [group.sentence for group in groups]
        hint = next((group.problem.hint for group in groups), "")
        if objects.is_going(seen.owner):
            detail = [*detail, "it is being deleted"]
        if objects.spec(seen.owner).get("suspend"):
            why, hint = pending.suspended(seen.owner, seen.workload)
            return dataclasses.replace(job, state=State.PENDING, detail=_joined(why, look.note), hint=hint)
        if look.note:
            hint = hint or "nothing is lost: what is missed now is shown when the API server answers again"
        verdicts = tuple(outcomes.verdicts(seen, groups))
        job = dataclasses.replace(job, detail=_joined(*detail, look.note), hint=hint, verdicts=verdicts)
        if look.told is None and not outcomes.has_begun(nodes):
            waiting = detail or [_waits(nodes)]
            return dataclasses.replace(job, state=State.PENDING, detail=_joined(*waiting, look.note))
        job = with_silence(dataclasses.replace(job, status=look.told), HEARD_AFAR, time.time())
        status = node_status.status(seen.name, seen.attempt, nodes, look.told, time.time())
        if status.verdicts:
            known = outcomes.enriched(status.verdicts, groups, look.machines)
            status = dataclasses.replace(status, verdicts=known)
        return dataclasses.replace(job, status=status)

    def _ended(
        self,
        job: Job,
        look: Snapshot,
        outcome: outcomes.Outcome,
        groups: Sequence[node_status.Group],
        sent: Submission | None,
    ) -> Job:
        seen = look.seen
        verdicts: list[Verdict] = []
        if outcome.state is not State.SUCCEEDED:
            said = outcomes.last_words(seen.pods).verdicts
            known = self._explained(sent, seen, said)
            verdicts = (
                outcomes.enriched(known, groups, look.machines, said)
                if said
                else outcomes.verdicts(seen, groups)
            )
        job = dataclasses.replace(
            job,
            state=outcome.state,
            exit_code=outcome.exit_code,
            detail=outcome.detail,
            ended=outcome.ended or time.time(),
            verdicts=tuple(verdicts),
        )
        if outcomes.lingers(seen, time.time()):
            job = dataclasses.replace(job, lingers=node_status.left(look.nodes, seen.pods))
        if seen.job is not None:
            status = node_status.status(seen.name, seen.attempt, look.nodes, None, time.time())
            job = dataclasses.replace(
                job,
                status=dataclasses.replace(
                    status, phase=Phase.ENDED, waiting_for=[], gate_passed=node_status.gate_passed(seen.pods)
                ),
            )
        if sent is not None and not sent.state:
            self._remember(sent, job)
        return job

    def _explained(self, sent: Submission | None, seen: ApiState, said: list[Verdict]) -> list[Verdict]:
        """Return what the job's agents said, or what was made of it while more could be seen."""
        if sent is None or not any(map(outcomes.is_silence, said)):
            return said
        kept = self.records.bundle(sent)
        return kept.verdicts if kept is not None and kept.attempt == seen.attempt else said

    def _remember(self, sent: Submission, job: Job) -> None:
        self.records.save(
            dataclasses.replace(
                sent,
                state=str(job.state),
                exit_code=job.exit_code,
                ended=job.ended,
                detail=job.detail,
                verdicts=list(job.verdicts),
            )
        )

    def _gone(self, sent: Submission) -> Job:
        """Return what is known of a job that the cluster has forgotten."""
        how = outcomes.gone(State(sent.state) if sent.state else None, cancelled=sent.cancelled)
        if sent.state:
            how = how._replace(exit_code=sent.exit_code, detail=sent.detail)
        ended = sent.ended or time.time()
        job = Job(handle(sent.namespace, sent.name), how.state, sent.at, sent.name, ended)
        job = dataclasses.replace(
            job, exit_code=how.exit_code, detail=how.detail, verdicts=tuple(sent.verdicts)
        )
        if not sent.state:
            self._remember(sent, job)
        return job

    # --- logs, cancel, collect

    def logs(self, handle: Handle, wanted: Selection, *, follow: bool) -> Iterator[str]:
        """Raises NotFoundError when the job, and with it its output, is gone."""
        path = self._parse(handle)
        if self._looks.at(*path).seen.owner is None:
            raise NotFoundError(
                f"the output of {handle} is gone: logs go with the job's pods",
                hint="`ddplaunch diagnose` shows the evidence that was kept, if any was",
            )

        def over() -> bool:
            return self._looks.at(*path).ended

        source = Output(
            self.api,
            lambda: self._looks.at(*path).seen,
            wanted,
            follow=follow,
            over=over,
            hurry=lambda: self._looks.hurry(*path),
            keep=lambda bundle: self._keep(path, bundle),
        )
        yield from lines.lines(source, wanted, follow=follow, alive=lambda: not over(), poll=_POLL)

    def _keep(self, path: tuple[str, str], bundle: Bundle) -> None:
        sent = self._sent(*path)
        if sent is not None and _is_of(sent, self._looks.at(*path).seen):
            self.records.keep(sent, bundle)

    def cancel(self, handle: Handle) -> Job:
        """Stop it, keep its evidence here, and delete its objects. Raises ClusterError if one stays."""
        namespace, name = self._parse(handle)
        sent = self._sent(namespace, name)
        look = self._looks.at(namespace, name, fresh=True)
        job = self._job(look, sent)
        seen = look.seen
        if job.state.ended or seen.owner is None:
            return job
        if sent is None or not _is_of(sent, seen):
            server, uid = self.api.place.server, objects.uid(seen.owner)
            sent = Submission(server, namespace, name, uid, job.submitted)
        sent = dataclasses.replace(sent, cancelled=True)
        self.records.save(sent)
        bundle = self._stopped(look)
        if bundle is None:
            bundle = self._last_words_while_removed(seen)
        else:
            deletion.begin(self.api, seen.owner, namespace)
        deletion.wait(self.api, self.queries, seen.owner, namespace)
        if bundle is not None:
            self.records.keep(sent, bundle)
        code = bundle.exit_code if bundle else None
        done = dataclasses.replace(
            job, state=State.CANCELLED, exit_code=code, ended=time.time(), detail="", hint="", status=None
        )
        done = dataclasses.replace(done, verdicts=tuple(bundle.verdicts if bundle else ()))
        self._remember(sent, done)
        return dataclasses.replace(done, detail=deletion.helm(seen.owner))

    def _stopped(self, look: Snapshot) -> Bundle | None:
        """Stop the job by its hub and return the hub's evidence. None: it cannot be reached, or left none."""
        seen = look.seen
        if not evidence.stop(self.api, seen, "ddplaunch cancel"):
            return None
        deadline = time.monotonic() + STOP
        while time.monotonic() < deadline:
            found = evidence.left(self.api, seen)
            if found is not None:
                return found
            time.sleep(0.5)
        return None

    def _last_words_while_removed(self, seen: ApiState) -> Bundle | None:
        """A job that is deleted takes its evidence at SIGTERM, and prints it, before its pods go."""
        assert seen.owner is not None
        heard: list[Bundle] = []
        listener = threading.Thread(target=self._listen, args=(seen, heard), daemon=True)
        listener.start()
        deletion.begin(self.api, seen.owner, seen.namespace)
        listener.join(deletion.GONE)
        return heard[-1] if heard else None

    def _listen(self, seen: ApiState, heard: list[Bundle]) -> None:
        found = evidence.left(self.api, seen, follow=True)
        if found is not None:
            heard.append(found)

    def collect(self, handle: Handle) -> Bundle | None:
        namespace, name = self._parse(handle)
        sent = self._sent(namespace, name)
        look = self._looks.at(namespace, name)
        seen = look.seen
        if seen.owner is None:
            if sent is None:
                raise _not_found(namespace, name)
            return self.records.bundle(sent)
        if sent is not None and not _is_of(sent, seen):
            sent = None
        bundle = None if look.ended else evidence.diagnose(self.api, seen)
        if bundle is None:
            bundle = evidence.left(self.api, seen)
        kept = bundle is None  # the hub's pod is gone, but who followed its log has its evidence
        if bundle is None and sent is not None:
            bundle = self.records.bundle(sent)
        if bundle is None or (kept and not look.ended):
            return bundle
        own = bundle.verdicts
        unknown = set(range(bundle.nodes)) - {each.node for each in bundle.check_ins}
        look, reports = self._looks.gate_reports(look, unknown)
        groups = node_status.troubled(look.nodes)
        if kept:  # its verdicts may have been explained before
            groups = [group for group in groups if group.problem.verdict is not None]

        def enriched(known: Bundle) -> Bundle:
            heard = [each for each in reports if each not in known.events]
            return dataclasses.replace(
                known,
                verdicts=outcomes.enriched(known.verdicts, groups, look.machines, own),
                events=sorted([*known.events, *heard], key=lambda event: event.at),
            )

        if sent is not None and look.ended:
            return self.records.keep(sent, bundle, enriched)
        return enriched(bundle)

    # --- names

    def _sent(self, namespace: str, name: str) -> Submission | None:
        return self.records.find(self.api.place.server, namespace, name)

    def _parse(self, handle: Handle) -> tuple[str, str]:
        """Namespace and name. Raises UsageError."""
        match = re.fullmatch(r"(?:([a-z0-9][-a-z0-9]*)/)?([a-z0-9][-.a-z0-9]*)", handle.path)
        if match is None:
            raise UsageError(
                f"{handle} is not a handle of a Kubernetes job",
                hint="kubernetes://NAMESPACE/NAME, as `ddplaunch submit` prints it",
            )
        return match[1] or self.api.place.namespace, match[2]


def handle(namespace: str, name: str) -> Handle:
    """Return the handle of a job."""
    return Handle("kubernetes", f"{namespace}/{name}")


def _is_of(sent: Submission, seen: ApiState) -> bool:
    """Whether it was this very job, and not another of its name."""
    return sent.uid == objects.uid(seen.owner or {})


def _joined(*texts: str) -> str:
    return "; ".join(filter(None, texts))


def _waits(nodes: Sequence[node_status.Node]) -> str:
    """Return what the nodes do that have not begun: `node 0 (pod …): getting its image and volumes`."""
    doing: dict[str, list[node_status.Node]] = {}
    for each in nodes:
        doing.setdefault(each.does, []).append(each)
    return "; ".join(f"{node_status.where(group)}: {does}" for does, group in doing.items() if does)


def _not_found(namespace: str, name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no job {name} in namespace {namespace}",
        hint="`ddplaunch list --to kubernetes` shows those of your context's namespace, and all you sent",
    )
