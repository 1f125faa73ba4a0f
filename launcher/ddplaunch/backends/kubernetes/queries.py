"""Fetches the objects of a job: the Job or JobSet, its pods, and events about them.

Each fetch lists all of them, without a watch: see docs/decisions/0009-kubernetes-is-polled.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ddplaunch.backends.kubernetes import node_status, objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError
from ddplaunch.backends.kubernetes.objects import Json

_MOST_EVENTS = 500
"""The most warnings of a namespace to list. The API keeps them for an hour."""
_NO_EVENTS = 60.0
"""Seconds for which a server that denied listing events is not asked again."""
_COUNTED = "BackoffLimitExceeded"
"""The reason for which a Job fails whose JobSet starts it again; see `render.kubernetes`."""
_SOME = 5
"""Pods to list in order to know whether some are left: a job may have a thousand."""


@dataclass(frozen=True)
class ApiState:
    """The objects of a job at one moment. `owner`: the Job, or the JobSet that creates it; None: it is
    gone.
    """

    namespace: str
    name: str
    owner: Json | None
    job: Json | None = None  # also None while the JobSet has not created it yet
    pods: tuple[Json, ...] = ()  # one for each node that has one, in the newest attempt
    events: tuple[Json, ...] = ()  # warnings about the job and its pods, the oldest first
    workload: Json | None = None
    others: tuple[Json, ...] = ()  # pods without a node's number, which only jobs of others have

    @property
    def nodes(self) -> int:
        """Return the number of the job's nodes."""
        return int(objects.spec(self.job or objects.job(self.owner)).get("completions") or 0)

    @property
    def attempt(self) -> int:
        """Return the attempt to which its pods belong; between two attempts, when it has none, the next
        one.
        """
        return max((objects.attempt(pod) for pod in self.pods), default=self._begun)

    @property
    def waits_for_pods(self) -> bool:
        """Whether the next attempt waits until this one's pods are gone. Before that, no Job has failed."""
        failing = objects.condition(self.job or {}, "FailureTarget") or {}
        is_next = failing.get("reason") == _COUNTED and self._begun < self._most_restarts
        return is_next or self._begun > self.attempt

    @property
    def _begun(self) -> int:
        """Return the number of the attempt that the job's controller has begun."""
        return int(objects.status(self.owner or {}).get("restarts") or 0)

    @property
    def comes_back(self) -> bool:
        """Whether the job's controller may start it again after a failure."""
        return self._most_restarts > 0

    @property
    def _most_restarts(self) -> int:
        policy = objects.spec(self.owner or {}).get("failurePolicy") or {}
        return int(policy.get("maxRestarts") or 0)


class Queries:
    """Queries to one cluster. All of them raise RefusedError and SilentError."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._no_events: dict[str, float] = {}  # by namespace: until when, in time.monotonic()

    def fetch(self, namespace: str, name: str, patience: float | None = None) -> ApiState:
        """Fetch the objects of one job. `owner` None: there is no job with that name."""
        path = f"{objects.collection(objects.JOBS, 'jobs', namespace)}/{name}"
        owner = self._find(path, f"look at Job {name}", patience)
        if owner is None:
            owner = self._jobset(namespace, name, patience)
        if owner is None:
            return ApiState(namespace, name, None)
        job: Json | None = owner
        if owner.get("kind") == "JobSet":
            jobs = self._list(namespace, objects.JOBS, "jobs", f"{objects.JOBSET_NAME}={name}", patience)
            job = jobs[0] if jobs else None
            pods = self._list(namespace, "v1", "pods", f"{objects.JOBSET_NAME}={name}", patience)
        else:
            selector = f"{objects.JOB_UID}={objects.uid(owner)}"
            pods = self._list(namespace, "v1", "pods", selector, patience)
        others = tuple(each for each in pods if objects.node(each) is None)
        found = ApiState(namespace, name, owner, job, newest(pods), others=others)
        if node_status.needs_events(found.nodes, found.pods):
            events = _about(self._warnings(namespace, patience), owner, job, pods)
            found = dataclasses.replace(found, events=tuple(events))
        return self._with_workload(found, patience)

    def all(self, namespace: str) -> list[ApiState]:
        """Return every ddplaunch job in the namespace, with one query for each kind of object."""
        ours = ",".join(f"{key}={value}" for key, value in objects.OURS.items())
        jobs = self._list(namespace, objects.JOBS, "jobs", ours, None)
        try:
            sets = self._list(namespace, objects.JOBSETS, "jobsets", ours, None)
        except RefusedError as error:
            if error.status not in (403, 404):
                raise
            sets = []  # the cluster has no JobSet, or this user may not list them
        pods = self._list(namespace, "v1", "pods", ours, None)
        found = []
        for owner in (*jobs, *sets):
            if objects.JOBSET_NAME in objects.labels(owner):
                continue  # its JobSet is listed below
            name = objects.name(owner)
            if owner.get("kind") == "JobSet":
                job = next(
                    (each for each in jobs if objects.labels(each).get(objects.JOBSET_NAME) == name), None
                )
                mine = [each for each in pods if objects.labels(each).get(objects.JOBSET_NAME) == name]
            else:
                job = owner
                uid = objects.uid(owner)
                mine = [each for each in pods if objects.labels(each).get(objects.JOB_UID) == uid]
            found.append(ApiState(namespace, name, owner, job, newest(mine)))
        if not any(node_status.needs_events(each.nodes, each.pods) for each in found):
            return found
        warnings = self._warnings(namespace, None)
        return [
            dataclasses.replace(each, events=tuple(_about(warnings, each.owner or {}, each.job, each.pods)))
            for each in found
        ]

    def submissions(self, namespace: str, family: str) -> set[str]:
        """Return the names of all jobs that were submitted with this name, which each of them has as a
        label.
        """
        selector = ",".join(
            f"{key}={value}" for key, value in {**objects.OURS, objects.FAMILY: family}.items()
        )
        found: list[Json] = []
        for version, resource in ((objects.JOBS, "jobs"), (objects.JOBSETS, "jobsets")):
            try:
                found += self._list(namespace, version, resource, selector, None)
            except RefusedError as error:
                if error.status not in (403, 404):
                    raise  # otherwise the cluster has no JobSet, or this user may not list them
        return {objects.name(each) for each in found if objects.JOBSET_NAME not in objects.labels(each)}

    def leftover_pods(self, namespace: str, name: str) -> list[Json]:
        """Return some of the pods with the job's name, whichever job created them."""
        pods = self._list(namespace, "v1", "pods", f"{objects.JOB_NAME}={name}", None, _SOME)
        return pods or self._list(namespace, "v1", "pods", f"{objects.JOBSET_NAME}={name}", None, _SOME)

    def _find(self, path: str, what: str, patience: float | None) -> Json | None:
        return self._api.find(path, what, patience)

    def _jobset(self, namespace: str, name: str, patience: float | None) -> Json | None:
        path = f"{objects.collection(objects.JOBSETS, 'jobsets', namespace)}/{name}"
        try:
            return self._find(path, f"look at JobSet {name}", patience)
        except RefusedError as error:
            if error.status == 403:
                return None  # a user who only uses Jobs needs no permission for JobSets
            raise

    def _list(
        self,
        namespace: str,
        version: str,
        resource: str,
        selector: str,
        patience: float | None,
        most: int = 0,
    ) -> list[Json]:
        found = self._api.get(
            objects.collection(version, resource, namespace),
            f"list {resource}",
            {"labelSelector": selector, **({"limit": most} if most else {})},
            patience,
        )
        # A list leaves out what all its items have in common.
        kind = str(found.get("kind", "")).removesuffix("List")
        return [
            {"apiVersion": found.get("apiVersion"), "kind": kind, **each} for each in objects.items(found)
        ]

    def _warnings(self, namespace: str, patience: float | None) -> list[Json]:
        """Return the warnings; none if this user may not list them."""
        if time.monotonic() < self._no_events.get(namespace, 0.0):
            return []
        try:
            found = self._api.get(
                objects.collection("v1", "events", namespace),
                "list events",
                {"fieldSelector": "type=Warning", "limit": _MOST_EVENTS},
                patience,
            )
        except RefusedError:
            self._no_events[namespace] = time.monotonic() + _NO_EVENTS
            return []
        return objects.items(found)

    def _with_workload(self, state: ApiState, patience: float | None) -> ApiState:
        owner = state.owner
        assert owner is not None
        if not objects.spec(owner).get("suspend") or objects.QUEUE not in objects.labels(owner):
            return state
        try:
            found = self._list(
                state.namespace,
                objects.KUEUE,
                "workloads",
                f"{objects.WORKLOAD_JOB}={objects.uid(owner)}",
                patience,
            )
        except RefusedError:
            return state
        return dataclasses.replace(state, workload=found[0] if found else None)


def _about(events: Iterable[Json], owner: Json, job: Json | None, pods: Iterable[Json]) -> list[Json]:
    """Return the events about these objects, and about their pods that are gone, the oldest first."""
    known = {objects.uid(each) for each in (owner, job or owner, *pods)}
    since = objects.created(owner) - 1
    prefix = f"{objects.name(job or owner)}-"
    mine = [
        each
        for each in events
        if (about := each.get("involvedObject") or {}).get("uid") in known
        or (
            about.get("kind") == "Pod"
            and str(about.get("name", "")).startswith(prefix)
            and node_status.event_time(each) >= since
        )
    ]
    return sorted(mine, key=node_status.event_time)


def newest(pods: Iterable[Json]) -> tuple[Json, ...]:
    """Return the youngest pod of each node in the last attempt, ordered by node."""
    listed = [each for each in pods if objects.node(each) is not None]
    last = max((objects.attempt(each) for each in listed), default=0)
    found: dict[int, Json] = {}
    for each in sorted(listed, key=objects.created):
        node = objects.node(each)
        if objects.attempt(each) == last and node is not None:
            found[node] = each
    return tuple(found[node] for node in sorted(found))
