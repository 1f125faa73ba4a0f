"""Creates the objects of a rendered file: all or none, and never over another job of that name.

The file's order is kept, so that what the pods need exists before the job that creates them. At the end the
job becomes the owner of the other objects, which are then deleted with it.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.backends import interrupts
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError, check_permissions
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.queries import Queries
from ddplaunch.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.kubernetes.record import Submission
    from ddplaunch.render import Rendered
    from ddplaunch.spec.models import JobSpec

_TTL = 600.0
"""Seconds for which a check-up that has ended stays in the cluster."""


def check_up(spec: JobSpec) -> JobSpec:
    """Return `spec` under a name of its own. Raises UsageError without image and job file: pods need one."""
    if not (spec.image or spec.job_file):
        raise UsageError(
            "a check-up on Kubernetes runs in pods, and they need an image",
            hint="set `image:` in a job file (`ddplaunch init` writes one), then "
            "`ddplaunch doctor job.yaml --to kubernetes`; or in a profile, and name that by --profile",
        )
    options = spec.kubernetes.model_copy(update={"ttl": spec.kubernetes.ttl or _TTL})
    return spec.model_copy(update={"name": f"doctor-{os.urandom(3).hex()}", "kubernetes": options})


_KEY_BYTES = 32


def key_secret(owner: Json) -> Json:
    """Return a Secret with a new key for the job `owner`, under the name that its pods mount."""
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
"""Kinds that a job can do without, and the consequence."""
_RENAME = "give the new job another name by `--set name=NAME`"
_MOST_TRIED = 100
"""Names that are tried for one job."""
_LOG = logging.getLogger(__name__)
_ROLL_BACK = 20.0
"""Seconds to delete what was created, once something failed."""


class NamesakeError(ClusterError):
    """Error for a name that another job has: one with a number behind it may be free."""


class Sent(NamedTuple):
    """The Job or JobSet of a submitted job."""

    namespace: str
    name: str
    uid: str
    family: str = ""  # its name in the job file


def documents(rendered: Rendered) -> list[Json]:
    """Return the objects of the rendered file, in its order."""
    import yaml

    from ddplaunch.spec.document import LOADER

    content = rendered.files[rendered.command[-1]].content
    return [each for each in yaml.load_all(content, LOADER) if each]


def send_counted(api: Api, queries: Queries, rendered: Rendered, sent: Iterable[Submission]) -> Sent:
    """Create the objects of the rendered file under the first name that no submission of the job has had.

    `sent`: those known from here, also of jobs that are gone. Raises ClusterError as `send`.
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
        except NamesakeError:  # of another family, or sent at the same moment
            if rendered.counted is None or number - first >= _MOST_TRIED:
                raise
            number += 1


def _after(names: Iterable[str], plain: str) -> int:
    """Return the number of the next submission: 1, which is the plain name, where there is none yet."""
    ends = [re.search(r"-([0-9]{1,9})$", name) for name in names if name != plain]
    numbers = [int(match[1]) for match in ends if match] + [1 for name in names if name == plain]
    return max(numbers, default=0) + 1


def _numbered(rendered: Rendered, number: int) -> Rendered:
    return rendered if rendered.counted is None else rendered.counted(number)


def send(api: Api, queries: Queries, found: Sequence[Json]) -> Sent:
    """Create these objects. Raises ClusterError when that fails; then none of them is left."""
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
    except BaseException:  # also for Ctrl-C: no half job must be left, and none whose handle was not printed
        with interrupts.held_off():
            made.roll_back()
        raise
    return Sent(namespace, name, made.owner_uid)


def try_out(api: Api, found: Sequence[Json]) -> None:
    """Let the server check these objects, and create none. Raises ClusterError for one that it refuses."""
    owner = next(each for each in found if each["kind"] in objects.OWNERS)
    namespace = objects.metadata(owner).get("namespace") or api.place.namespace
    _refuse_old_server(api, owner)
    found = _permitted(api, [key_secret(owner), *found], namespace)
    _refuse_missing_parts(api, owner, namespace)
    query = {"fieldManager": objects.MANAGER, "dryRun": "All"}
    for each in found:
        # Under a name that is free: an object of an earlier job would be changed, which it cannot be.
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
    """Whether the job file asks for it: by default there is no policy for egress."""
    return "Egress" in objects.spec(document).get("policyTypes", ())


class _Made:
    """Objects that were created so far."""

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
        """Create an object. Raises ClusterError, also when another of that name has just been created."""
        path = objects.path(document, self._namespace)
        what = f"create {document['kind']} {objects.name(document)}"
        self._tried.append((document, time.time()))
        answer = self._api.request(
            "PATCH", path, what, query={"fieldManager": objects.MANAGER}, body=document, kind=_APPLY
        )
        if answer.status != 201 and not answer.unsure:
            self._tried.pop()  # it is another job's
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
                f"the job could not be created, and these parts could not be deleted: {', '.join(left)}",
                hint=f"kubectl delete --namespace {self._namespace} {' '.join(left)}",
            )

    def _remove(self, path: str, document: Json, tried: float) -> None:
        what = f"remove {document['kind']} {objects.name(document)}"
        uid = self._uids.get(path)
        if uid is None:  # it is not known whether it was created
            there = self._api.find(path, what, _ROLL_BACK)
            # The two clocks may differ; an object of another submission would have been refused before.
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
    """Raise ClusterError for a job that needs JobSet or Kueue where the cluster has none."""
    if owner["kind"] == "JobSet" and not _knows(api, owner["apiVersion"], "jobsets"):
        raise ClusterError(
            f"the cluster has no JobSet controller, or not {owner['apiVersion']}",
            hint="`kubernetes.jobset: false` sends a plain Job; see jobset.sigs.k8s.io for how to install it",
        )
    queue = objects.labels(owner).get(objects.QUEUE)
    if not queue:
        return
    if not _knows(api, objects.KUEUE, "localqueues"):
        raise ClusterError(
            f"the job asks for queue {queue}, and the cluster has no Kueue: it would never start",
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
    """Return whether the object exists; True where this user may not read it: then its controller says so."""
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
        # DNS still has their names, which the new pods would share.
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
