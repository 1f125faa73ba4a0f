"""Creates the objects of a rendered file: all or none, and never over another job with that name.

The file's order is kept, so that what the pods need exists before the job that creates them. At the end the
job becomes the owner of the other objects, which are then deleted with it.

What this user has submitted is kept, and how it ended: a cluster forgets deleted jobs. There is a file for
each name in a namespace, and beside it a folder with what the job's attempts left.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ddplaunch.agent.contract import REGROUP, Bundle, Files, JobStatus, NodeStatus, Phase, bundle_file, codec
from ddplaunch.agent.job_file import kubernetes
from ddplaunch.backends import files, folder, interrupts
from ddplaunch.backends.folder import KEPT, EndRecord, newest_first, old
from ddplaunch.backends.job import Earlier
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError, check_permissions
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.queries import Queries
from ddplaunch.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Job
    from ddplaunch.render import Rendered
    from ddplaunch.spec.models import JobSpec

_UNSEEN = (
    "no ddplaunch command followed the job to its end, and its output and evidence were deleted with its pods"
)
_SHOWN = 100
"""The earlier attempts that are named; the number comes from a label, which may be any."""
_BUNDLE, _STATUS = Path(Files.BUNDLE).name, Path(Files.STATUS).name


class Attempts:
    """The attempts of one job, kept in `path`. An OSError while something is written is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def bundle(self, number: int) -> Bundle | None:
        """Return the bundle of that attempt; None where none was kept."""
        try:
            return files.read_bundle(self._run(number) / _BUNDLE, bundle_file.MOST_DUMPS)
        except (OSError, codec.ContractError):
            return None

    def end(self, number: int) -> JobStatus | None:
        """Return how that attempt ended; None where nothing here has seen it."""
        return files.read_if_valid(JobStatus, self._run(number) / _STATUS)

    def keep(self, bundle: Bundle) -> None:
        """Keep the last bundle of an attempt, and what it says of the attempt's end."""
        run = self._run(bundle.attempt)
        with contextlib.suppress(OSError):
            run.mkdir(parents=True, exist_ok=True)
            bundle_file.write(str(run / _BUNDLE), bundle, mode=0o600)
            codec.write(str(run / _STATUS), _end(bundle), mode=0o600)

    def note(self, status: JobStatus) -> None:
        """Keep how an attempt ended by its hub's status, until there is its bundle."""
        run = self._run(status.attempt)
        if not (run / _STATUS).exists():
            with contextlib.suppress(OSError):
                run.mkdir(parents=True, exist_ok=True)
                codec.write(str(run / _STATUS), status, mode=0o600)

    def earlier(self, present: int) -> tuple[Earlier, ...]:
        """Return the attempts before the `present` one, the oldest first, also those that left nothing."""
        kept = {each.number: each for each in folder.earlier(self._path, present)} if present else {}
        return tuple(kept.get(each.number, each) for each in unseen(present))

    @property
    def last(self) -> int:
        """Return the number of the last attempt that is known by what was kept; 0 where nothing was."""
        runs = [path.name.rpartition("-")[2] for path in folder.attempts(self._path)]
        last = max((int(name) for name in runs if name.isdecimal()), default=0)
        end = self.end(last)
        return last + (end is not None and end.exit_code == REGROUP)

    def forget(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _run(self, number: int) -> Path:
        return self._path / f"{Files.RUN}-{number}"


def unseen(present: int) -> tuple[Earlier, ...]:
    """Return the attempts before the `present` one, as those of which nothing was kept."""
    return tuple(
        Earlier(number, None, None, why_none=_UNSEEN) for number in range(max(0, present - _SHOWN), present)
    )


def _end(bundle: Bundle) -> JobStatus:
    """Return the last status of the attempt, as far as its bundle has it."""
    words = [
        NodeStatus(each.node, phase=Phase.ENDED, detail=each.text, exit_code=bundle.exit_code)
        for each in bundle.events
        if each.kind == "checkpoint" and each.node is not None
    ]
    return JobStatus(
        bundle.job,
        bundle.attempt,
        Phase.ENDED,
        bundle.written,
        words,
        bundle.started,
        bundle.written,
        verdicts=bundle.verdicts,
        exit_code=bundle.exit_code,
        gate_passed=bundle.agreed is not None,
        failed_attempts=[replace(each, evidence=None) for each in bundle.failed_attempts],
    )


_PATIENCE = 2.0
"""Seconds to wait for another process that writes a record, which takes milliseconds."""


@dataclass(frozen=True)
class Submission(EndRecord):
    """A job that was sent; `at` in seconds since the epoch."""

    server: str
    namespace: str
    name: str
    uid: str  # of the Job or JobSet
    at: float
    cancelled: bool = False
    attempt: int = 0  # the last one, once the job has ended
    named: str = ""  # in the job file, where the job's own name has a number behind it

    @property
    def family(self) -> str:
        """Return its name in the job file, which all its submissions have in common."""
        return self.named or self.name

    def with_end(self, job: Job) -> Self:
        """Return this record with the end of `job`, and the number of its last attempt."""
        return dataclasses.replace(super().with_end(job), attempt=job.attempt)


class Records:
    """Jobs that this user submitted from machines that share this state folder."""

    def __init__(self, root: Path) -> None:
        self._root = root / "kubernetes"

    def save(self, submission: Submission) -> None:
        """Write the record, in place of an earlier one of that name. An OSError is ignored."""
        path = self._path(submission.server, submission.namespace, submission.name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            codec.write(str(path), submission)

    def begin(self, submission: Submission) -> None:
        """Write the record of a new job, and forget an earlier job of that name."""
        self._sweep()
        self.attempts(submission).forget()
        self.save(submission)

    def attempts(self, submission: Submission) -> Attempts:
        """Return what the job's attempts left, as far as it was kept."""
        path = self._path(submission.server, submission.namespace, submission.name)
        return Attempts(path.with_suffix(".attempts"))

    def paths(self, submission: Submission) -> list[Path]:
        """Return all that is kept of the job: its attempts' folder, then its record."""
        path = self._path(submission.server, submission.namespace, submission.name)
        return [path.with_suffix(".attempts"), path]

    def keep(
        self, submission: Submission, bundle: Bundle, add: Callable[[Bundle], Bundle] = lambda known: known
    ) -> Bundle:
        """Keep the bundle of an attempt's hub, completed by `add`, and return it.

        A bundle that was kept before stays, and is completed, unless `bundle` is newer: pods, their logs and
        events are soon gone, so a later command knows less.
        """
        attempts = self.attempts(submission)
        with self._alone():
            kept = attempts.bundle(bundle.attempt)
            known = add(bundle if kept is None or kept.written < bundle.written else kept)
            if known != kept:
                attempts.keep(known)
        return known

    def bundle(self, submission: Submission, attempt: int) -> Bundle | None:
        """Return the bundle that was kept of an attempt; None where none was."""
        return self.attempts(submission).bundle(attempt)

    def find(self, server: str, namespace: str, name: str) -> Submission | None:
        """Return the newest submission of that name; None: there is none."""
        return files.read_if_valid(Submission, self._path(server, namespace, name))

    def all(self, server: str = "*") -> list[Submission]:
        """Return all submissions to `server`, or to all clusters, the newest first."""
        folder = server if server == "*" else _short(server)
        return newest_first(Submission, self._root.glob(f"{folder}/*/*.json"))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder for one process and one thread, where its file system has locks."""
        try:
            lock = (self._root / "lock").open("a")
        except OSError:  # then no record can be written either
            yield
            return
        with lock:
            deadline = time.monotonic() + _PATIENCE
            while not _locked(lock.fileno()) and time.monotonic() < deadline:
                time.sleep(0.01)  # flock(2) itself has no bound
            yield

    def _path(self, server: str, namespace: str, name: str) -> Path:
        return self._root / _short(server) / namespace / f"{name}.json"

    def _sweep(self) -> None:
        for path in old(self._root.glob("*/*/*"), KEPT):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _locked(file: int) -> bool:
    """Lock the file; return False while another process or thread holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no locks
    return True


def _short(server: str) -> str:
    """Return a short folder name for a URL."""
    return hashlib.sha256(server.encode()).hexdigest()[:12]


_TTL = 600.0
"""Seconds for which a check-up that has ended stays in the cluster."""


def check_up(spec: JobSpec) -> JobSpec:
    """Return `spec` with a name of its own. Raises UsageError if there is no image and no job file, because
    pods need one.
    """
    if not (spec.image or spec.job_file):
        raise UsageError(
            "the doctor runs in pods on Kubernetes, and they need an image",
            hint="set `image:` in a job file (`ddplaunch init` writes one), then `ddplaunch doctor job.yaml "
            "--to kubernetes`; or set it in a profile, and name the profile with --profile",
        )
    options = spec.kubernetes.model_copy(update={"ttl": spec.kubernetes.ttl or _TTL})
    return spec.model_copy(update={"name": f"doctor-{os.urandom(3).hex()}", "kubernetes": options})


_KEY_BYTES = 32


def key_secret(owner: Json) -> Json:
    """Return a Secret with a new key for the job `owner`, with the name under which its pods mount it."""
    own = objects.metadata(owner)
    metadata = {field: own[field] for field in ("namespace", "annotations") if field in own}
    labels = {name: value for name, value in objects.labels(owner).items() if name != objects.QUEUE}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "name": objects.name(owner) + objects.KEY, "labels": labels},
        "immutable": True,
        "data": {"key": base64.b64encode(os.urandom(_KEY_BYTES).hex().encode()).decode()},
    }


_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_WITHOUT = {
    "Secret": "the key of this job is its uid, a label that every user who may list pods can read",
    "NetworkPolicy": "every pod of the cluster can connect to the port of this job's hub",
}
"""Kinds that a job can do without, and what happens then."""
_RENAME = "give the new job another name with `--set name=NAME`"
_MOST_TRIED = 100
"""Names to try for one job, at the most."""
_LOG = logging.getLogger(__name__)
_ROLL_BACK = 20.0
"""Seconds to delete what was created if something failed."""


class NamesakeError(ClusterError):
    """Error for a name that another job has. The same name with a number at the end may be free."""


class Sent(NamedTuple):
    """The Job or JobSet of a submitted job."""

    namespace: str
    name: str
    uid: str
    family: str = ""  # its name in the job file


def documents(rendered: Rendered) -> list[Json]:
    """Return the objects of the rendered file, in the file's order."""
    import yaml

    from ddplaunch.spec.document import LOADER

    content = rendered.files[rendered.command[-1]].content
    return [each for each in yaml.load_all(content, LOADER) if each]


def send_counted(api: Api, queries: Queries, rendered: Rendered, sent: Iterable[Submission]) -> Sent:
    """Create the objects of the rendered file under the first name that no submission of the job has had.

    `sent`: the names that are known from here, including those of jobs that are gone. Raises ClusterError as
    `send` does.
    """
    found = documents(rendered)
    owner = next(each for each in found if each["kind"] in objects.OWNERS)
    namespace = objects.metadata(owner).get("namespace") or api.place.namespace
    with interrupts.let_through():
        names = queries.submissions(namespace, rendered.job)
    names |= {each.name for each in sent if (each.namespace, each.family) == (namespace, rendered.job)}
    number = first = _after(names, rendered.job)
    while True:
        try:
            given = documents(_numbered(rendered, number)) if number > 1 else found
            return send(api, queries, given)._replace(family=rendered.job)
        except NamesakeError:  # a job of another family, or one that was sent at the same moment
            if rendered.counted is None or number - first >= _MOST_TRIED:
                raise
            number += 1


def _after(names: Iterable[str], plain: str) -> int:
    """Return the number of the next submission: 1, which means the plain name, if there is none yet."""
    ends = [re.search(r"-([0-9]{1,9})$", name) for name in names if name != plain]
    numbers = [int(match[1]) for match in ends if match] + [1 for name in names if name == plain]
    return max(numbers, default=0) + 1


def _numbered(rendered: Rendered, number: int) -> Rendered:
    return rendered if rendered.counted is None else rendered.counted(number)


def send(api: Api, queries: Queries, found: Sequence[Json]) -> Sent:
    """Create these objects. Raises ClusterError if that fails; then none of them is left."""
    owner = next(each for each in found if each["kind"] in objects.OWNERS)
    namespace = objects.metadata(owner).get("namespace") or api.place.namespace
    name = objects.name(owner)
    with interrupts.let_through():
        _refuse_old_server(api, owner)
        found = _permitted(api, [key_secret(owner), *found], namespace)
        _refuse_missing_parts(api, owner, namespace)
        _refuse_namesakes(api, queries, found, namespace, name)
    made = _Made(api, namespace)
    try:
        with interrupts.let_through():
            for each in found:
                made.apply(each)
            made.adopt()
    except BaseException:  # also for Ctrl-C: no half job may be left, and none whose handle was not printed
        with interrupts.held_off():
            made.roll_back()
        raise
    return Sent(namespace, name, made.owner_uid)


def try_out(api: Api, found: Sequence[Json]) -> None:
    """Let the server check these objects without creating any. Raises ClusterError if it refuses one."""
    owner = next(each for each in found if each["kind"] in objects.OWNERS)
    namespace = objects.metadata(owner).get("namespace") or api.place.namespace
    _refuse_old_server(api, owner)
    found = _permitted(api, [key_secret(owner), *found], namespace)
    _refuse_missing_parts(api, owner, namespace)
    query = {"fieldManager": objects.MANAGER, "dryRun": "All"}
    for each in found:
        # Use a name that is free: otherwise the server would try to change an earlier job's object, which
        # cannot be done.
        renamed = {**each, "metadata": {**each["metadata"], "name": f"{objects.name(each)}-try"}}
        what = f"create {each['kind']} {objects.name(each)}"
        api.request("PATCH", objects.path(renamed, namespace), what, query=query, body=renamed, kind=_APPLY)


def _permitted(api: Api, found: Sequence[Json], namespace: str) -> list[Json]:
    """Return the objects that the user may create, and log what the others are for. Raises ClusterError."""
    spare = {kind for each in found if (kind := each["kind"]) in _WITHOUT and not _is_asked_for(each)}
    refused = check_permissions(api, found, namespace, spare)
    for kind in sorted(refused):
        _LOG.warning(
            "note: you may not create %s in namespace %s: %s; docs/how-to/kubernetes.md has the whole Role",
            objects.plural(kind),
            namespace,
            _WITHOUT[kind],
        )
    return [each for each in found if each["kind"] not in refused]


def _is_asked_for(document: Json) -> bool:
    """Whether the job file asks for it: by default there is no egress policy."""
    return "Egress" in objects.spec(document).get("policyTypes", ())


class _Made:
    """Objects that have been created so far."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._tried: list[tuple[Json, float]] = []
        self._uids: dict[str, str] = {}  # path -> uid
        self._owner: Json | None = None

    @property
    def owner_uid(self) -> str:
        assert self._owner is not None
        return objects.uid(self._owner)

    def apply(self, document: Json) -> None:
        """Create an object. Raises ClusterError, also if another one with that name has just been created."""
        path = objects.path(document, self._namespace)
        what = f"create {document['kind']} {objects.name(document)}"
        self._tried.append((document, time.time()))
        answer = self._api.request(
            "PATCH", path, what, query={"fieldManager": objects.MANAGER}, body=document, kind=_APPLY
        )
        if answer.status != 201 and not answer.unsure:
            self._tried.pop()  # it belongs to another job
            raise _taken(document, answer.body, self._namespace)
        self._uids[path] = objects.uid(answer.body)
        if document["kind"] in objects.OWNERS:
            self._owner = answer.body

    def adopt(self) -> None:
        """Make the job the owner of the other objects. Raises ClusterError."""
        owner = self._owner
        assert owner is not None
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": objects.name(owner),
            "uid": objects.uid(owner),
        }
        body = {"metadata": {"ownerReferences": [reference]}}
        for document, _ in self._tried:
            if document["kind"] not in objects.OWNERS:
                path = objects.path(document, self._namespace)
                what = f"give {document['kind']} {objects.name(document)} to its job"
                self._api.request(
                    "PATCH", path, what, query={"fieldManager": objects.MANAGER}, body=body, kind=_MERGE
                )

    def roll_back(self) -> None:
        """Delete the objects, the job first. Raises ClusterError, which names those that remain."""
        left = []
        for document, tried in reversed(self._tried):
            path = objects.path(document, self._namespace)
            try:
                self._remove(path, document, tried)
            except ClusterError:
                left.append(f"{objects.plural(document['kind'])}/{objects.name(document)}")
        if left:
            raise ClusterError(
                f"the job could not be created, and parts of it could not be deleted: {', '.join(left)}",
                hint=f"kubectl delete --namespace {self._namespace} {' '.join(left)}",
            )

    def _remove(self, path: str, document: Json, tried: float) -> None:
        what = f"remove {document['kind']} {objects.name(document)}"
        uid = self._uids.get(path)
        if uid is None:  # it is not known whether the object was created
            there = self._api.find(path, what, _ROLL_BACK)
            # The two clocks may differ. An object of another submission would have been refused before.
            if there is None or not objects.is_ours(there) or objects.created(there) < tried - 60:
                return
            uid = objects.uid(there)
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            self._api.request("DELETE", path, what, body=body, patience=_ROLL_BACK)
        except RefusedError as error:
            if error.status not in (404, 409):
                raise


def _refuse_old_server(api: Api, owner: Json) -> None:
    version = api.get("/version", "tell its version")
    numbers = [re.match(r"\d+", str(version.get(key, ""))) for key in ("major", "minor")]
    there = tuple(int(match[0]) for match in numbers if match)
    needs = [(kubernetes.OLDEST, "a job", "whose init containers may run beside the trainer")]
    if objects.is_elastic(objects.job(owner)):
        needs.append((kubernetes.OLDEST_ELASTIC, "a range of nodes", "whose Jobs have a `successPolicy`"))
    for oldest, what, why in needs:
        if all(numbers) and there < oldest:
            raise ClusterError(
                f"the cluster runs Kubernetes {version.get('gitVersion')}; {what} needs "
                f"{oldest[0]}.{oldest[1]}, the first version {why}",
                hint="nothing was submitted; ask for an upgrade, or use another cluster",
            )


def _refuse_missing_parts(api: Api, owner: Json, namespace: str) -> None:
    """Raise ClusterError if a job needs JobSet or Kueue and the cluster does not have it."""
    if owner["kind"] == "JobSet" and not _knows(api, owner["apiVersion"], "jobsets"):
        raise ClusterError(
            f"the cluster has no JobSet controller, or none for {owner['apiVersion']}",
            hint="`kubernetes.jobset: false` sends a plain Job; jobset.sigs.k8s.io says how to install the "
            "controller",
        )
    queue = objects.labels(owner).get(objects.QUEUE)
    if not queue:
        return
    if not _knows(api, objects.KUEUE, "localqueues"):
        raise ClusterError(
            f"the job asks for queue {queue}, but the cluster has no Kueue: the job would never start",
            hint="remove `kubernetes.queue`",
        )
    path = f"{objects.collection(objects.KUEUE, 'localqueues', namespace)}/{queue}"
    if not _is_there(api, path, f"look at queue {queue}"):
        raise ClusterError(
            f"there is no queue {queue} in namespace {namespace}: the job would never start",
            hint=f"`kubectl get localqueues --namespace {namespace}` lists them; see `kubernetes.queue`",
        )
    priority = objects.labels(owner).get(objects.QUEUE_PRIORITY)
    path = f"/apis/{objects.KUEUE}/workloadpriorityclasses/{priority}"
    if priority and not _is_there(api, path, f"look at WorkloadPriorityClass {priority}"):
        raise ClusterError(
            f"there is no WorkloadPriorityClass {priority}: Kueue would never look at the job",
            hint="`kubectl get workloadpriorityclasses` lists them; see `kubernetes.queue_priority`",
        )


def _is_there(api: Api, path: str, doing: str) -> bool:
    """Return whether the object exists; True if this user may not read it: then its controller will say
    so.
    """
    try:
        return api.find(path, doing) is not None
    except RefusedError:
        return True


def _knows(api: Api, api_version: str, resource: str) -> bool:
    try:
        resources = api.find(f"/apis/{api_version}", f"look for {resource}")
    except RefusedError:
        return True  # this user may not ask
    return any(each.get("name") == resource for each in (resources or {}).get("resources") or [])


def _refuse_namesakes(api: Api, queries: Queries, found: Sequence[Json], namespace: str, name: str) -> None:
    other = queries.fetch(namespace, name)
    if other.owner is not None:
        raise _taken(other.owner, other.owner, namespace)
    pods = queries.leftover_pods(namespace, name)
    if pods:
        # DNS still has their names, and the new pods would share these.
        raise NamesakeError(
            f"pods of an earlier job {name} are still there, in namespace {namespace}: "
            + ", ".join(objects.name(pod) for pod in pods[:3]),
            hint=f"wait until they are gone (`kubectl get pods -n {namespace}` shows them), or {_RENAME}",
        )
    for document in found:
        there = api.find(
            objects.path(document, namespace), f"look at {document['kind']} {objects.name(document)}"
        )
        if there is not None:
            raise _taken(document, there, namespace)


def _taken(document: Json, there: Json, namespace: str) -> ClusterError:
    kind, name = document["kind"], objects.name(document)
    handle = f"kubernetes://{namespace}/{name}"
    if objects.is_being_deleted(there):
        return NamesakeError(
            f"an earlier {kind} {name} in namespace {namespace} is still being deleted",
            hint=f"wait until it is gone, or {_RENAME}",
        )
    if kind in objects.OWNERS:
        ended = next(
            (word for word in ("Complete", "Completed", "Failed") if objects.condition(there, word)), ""
        )
        if ended:
            return NamesakeError(
                f"there is a {kind} {name} in namespace {namespace} already, which has ended",
                hint=f"`kubectl delete {kind.lower()} -n {namespace} {name}` deletes it and its logs; or "
                f"{_RENAME}, or set `kubernetes.ttl` to have jobs deleted after their end",
            )
        return NamesakeError(
            f"there is a {kind} {name} in namespace {namespace} already, and it has not ended",
            hint=f"`ddplaunch status {handle}` shows it, `ddplaunch cancel {handle}` stops and deletes it",
        )
    whose, unused = ", and ddplaunch did not create it", ""
    if objects.is_ours(there):
        whose, unused = "", f"; or `kubectl delete -n {namespace} {kind.lower()} {name}`, if no job uses it"
    return ClusterError(
        f"there is a {kind} {name} in namespace {namespace} already{whose}",
        hint=f"give the job another name{unused}",
    )
