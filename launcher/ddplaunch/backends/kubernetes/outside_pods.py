"""Finds the pods of a job that ddplaunch did not start, and the container of each in which its ranks run."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from ddplaunch.agent.contract import Phase, PhaseName
from ddplaunch.backends.kubernetes import object_schema, objects
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.api_errors import RefusedError
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import NotFoundError, UsageError


class Kind(NamedTuple):
    """A kind of object that owns pods. `label`: of these, with its name; "": they are found by its spec.

    `groups`: a label of pods by whose values, 0 and on, one object has several jobs; "": it has one.
    """

    word: str
    spellings: tuple[str, ...]
    version: str
    resource: str
    label: str
    groups: str = ""

    @property
    def full(self) -> str:
        """Return the resource as kubectl takes it, whatever else is installed."""
        group = objects.group(self.version)
        return f"{self.resource}.{group}" if group else self.resource


_KUBEFLOW: Final = "training.kubeflow.org/job-name"
_OPERATOR: Final = "training.kubeflow.org/operator-name"
POD: Final = Kind("Pod", ("pod", "po"), "v1", "pods", "")
STATEFUL_SET: Final = Kind("StatefulSet", ("statefulset", "sts"), "apps/v1", "statefulsets", "")
KINDS: Final = (
    Kind("Job", ("job",), objects.JOBS, "jobs", objects.JOB_NAME),
    Kind("JobSet", ("jobset",), objects.JOBSETS, "jobsets", objects.JOBSET_NAME),
    Kind("PyTorchJob", ("pytorchjob",), "kubeflow.org/v1", "pytorchjobs", _KUBEFLOW),
    # Kubeflow's Trainer makes a JobSet of the same name of it.
    Kind("TrainJob", ("trainjob",), "trainer.kubeflow.org/v1alpha1", "trainjobs", objects.JOBSET_NAME),
    Kind("MPIJob", ("mpijob",), "kubeflow.org/v2beta1", "mpijobs", _KUBEFLOW),
    Kind(
        "LeaderWorkerSet",
        ("leaderworkerset", "lws"),
        "leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/group-index",
    ),
    Kind("Volcano Job", ("vcjob", "vj"), "batch.volcano.sh/v1alpha1", "jobs", "volcano.sh/job-name"),
    STATEFUL_SET,
    POD,
)
_NAMED: Final = re.compile(r"([a-z0-9][-a-z0-9]*)/([A-Za-z][-A-Za-z0-9.]*)/([a-z0-9][-.a-z0-9]*)")
_SELECTED: Final = re.compile(r"([a-z0-9][-a-z0-9]*)/?\?selector=(.+)", re.DOTALL)
_DEFAULT: Final = "kubectl.kubernetes.io/default-container"
_CONTAINERS: Final = ("pytorch", "node", "trainer", "launcher", "worker", "mpi", "training", "train", "main")
"""Names that operators and their examples give to the container of the ranks, the most telling first."""


class Target(NamedTuple):
    """Object that owns pods, or the labels of these, as the user has named it."""

    namespace: str
    kind: Kind | None  # None: pods by `selector`
    name: str = ""
    selector: str = ""

    def __str__(self) -> str:
        if self.kind is None:
            return f"pods with {self.selector} in namespace {self.namespace}"
        return f"{self.kind.word} {self.name} in namespace {self.namespace}"

    @property
    def path(self) -> str:
        """Return what stands after kubernetes:// in its handle."""
        if self.kind is None:
            return f"{self.namespace}?selector={self.selector}"
        return f"{self.namespace}/{self.kind.spellings[0]}/{self.name}"

    @property
    def one_job(self) -> str:
        """Return what to name in its place where its pods are of several jobs; "" where that is not known."""
        if self.kind is None or not self.kind.groups:
            return ""
        return f"kubernetes://{self.namespace}?selector={self.kind.label}={self.name},{self.kind.groups}=0"


def parse(path: str) -> Target:
    """Return what the text after kubernetes:// names. Raises UsageError for a kind that is not known."""
    named, selected = _NAMED.fullmatch(path), _SELECTED.fullmatch(path)
    if selected is not None:
        return Target(selected[1], None, selector=unquote(selected[2]).strip())
    if named is None:
        raise UsageError(
            f"kubernetes://{path} names no pods",
            hint="kubernetes://NAMESPACE/KIND/NAME, such as kubernetes://team/pytorchjob/llm, or by labels "
            "'kubernetes://team?selector=app=llm,tier=train', in quotes",
        )
    kind = next((each for each in KINDS if _spells(named[2].lower(), each)), None)
    if kind is None:
        known = ", ".join(each.spellings[0] for each in KINDS)
        raise UsageError(
            f"{named[2]} is no kind of object whose pods are known here",
            hint=f"one of {known}; pods of any other by labels: "
            f"'kubernetes://{named[1]}?selector=KEY=VALUE', `kubectl get pods --show-labels` shows these",
        )
    return Target(named[1], kind, named[3])


def _spells(word: str, kind: Kind) -> bool:
    """Whether `word` means this kind, as for kubectl: job, jobs, job.batch, jobs.batch."""
    short, dot, group = word.partition(".")
    if dot and group != objects.group(kind.version):
        return False
    own = kind.resource.removesuffix("s")
    return short in ((own, kind.resource) if dot else (*kind.spellings, f"{kind.spellings[0]}s"))


def find(api: Api, target: Target) -> list[Json]:
    """Return the pods, those of a job in the order of its nodes. Raises NotFoundError, ClusterError."""
    namespace, kind = target.namespace, target.kind
    if kind is POD:
        pods = [] if (pod := _find(api, POD, target)) is None else [pod]
    elif kind is STATEFUL_SET:
        selector = _selector(_find(api, STATEFUL_SET, target) or {})
        pods = _listed(api, namespace, selector) if selector else []
    else:
        pods = _listed(api, namespace, f"{kind.label}={target.name}" if kind else target.selector)
    if not pods:
        raise _no_pods(api, target)
    return sorted(pods, key=lambda pod: _natural(objects.name(pod)))


def _listed(api: Api, namespace: str, selector: str) -> list[Json]:
    path = objects.collection("v1", "pods", namespace)
    try:
        return object_schema.listed(api.get(path, "list pods", {"labelSelector": selector}))
    except RefusedError as error:
        if error.status != 400:
            raise
        raise UsageError(
            f"the API server does not read the selector {selector!r}: {error.message}",
            hint="as for `kubectl get pods --selector`: KEY=VALUE,KEY=VALUE",
        ) from error


def _find(api: Api, kind: Kind, target: Target) -> Json | None:
    path = f"{objects.collection(kind.version, kind.resource, target.namespace)}/{target.name}"
    found = api.find(path, f"look at {kind.word} {target.name}")
    return None if found is None else object_schema.formed(found)


def _selector(found: Json) -> str:
    """Return the selector in an object's spec, as a query has it."""
    selector = objects.spec(found).get("selector") or {}
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or []:
        key, values = each.get("key"), ",".join(each.get("values") or [])
        operators = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})"}
        operators |= {"Exists": f"{key}", "DoesNotExist": f"!{key}"}
        parts.append(operators.get(each.get("operator"), f"{key}"))
    return ",".join(parts)


def _no_pods(api: Api, target: Target) -> NotFoundError:
    kind, namespace = target.kind, target.namespace
    if kind is None:
        return NotFoundError(
            f"there are no {target}",
            hint=f"`kubectl get pods -n {namespace} --show-labels` shows what is there",
        )
    try:
        is_there = kind is not POD and _find(api, kind, target) is not None
    except RefusedError:  # this user may list pods, and not look at what owns them
        return NotFoundError(
            f"there are no pods of {target}", hint=f"`kubectl get pods -n {namespace}` shows what is there"
        )
    if is_there:
        why = f"`kubectl describe {kind.full} {target.name} -n {namespace}` shows why"
        return NotFoundError(f"{target} has no pods", hint=why)
    return NotFoundError(f"there is no {target}", hint=f"`kubectl get {kind.full} -n {namespace}` lists them")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return the name as a key of a sort in which worker-2 comes before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def container(pod: Json) -> tuple[str, int]:
    """Return the container in which the ranks run, as far as names tell, and how many the pod has."""
    names = [str(each.get("name", "")) for each in objects.spec(pod).get("containers") or []]
    chosen = (objects.metadata(pod).get("annotations") or {}).get(_DEFAULT, "")
    labels = objects.metadata(pod).get("labels") or {}
    # mpi-operator gives sshd's keys to the first one, whatever its name.
    known = [name for name in _CONTAINERS if name in names and labels.get(_OPERATOR) != "mpi-operator"]
    return next((name for name in (chosen, *known, *names) if name in names), ""), len(names)


class Obstacle(NamedTuple):
    """Reason why nothing can run in a pod's container now. `text` follows the pod's name and a colon."""

    phase: PhaseName
    text: str


def obstacle(pod: Json, name: str) -> Obstacle | None:
    """Return why a command cannot run in this container; None where it can."""
    status = objects.status(pod)
    phase = str(status.get("phase") or "Unknown")
    waiting = objects.state(pod, name, "waiting")
    ended = objects.state(pod, name, "terminated")
    if phase in ("Succeeded", "Failed"):
        why = _in_brackets(status.get("reason") or _end(ended or {}))
        return Obstacle(Phase.ENDED, f"{phase.lower()}{why}")
    if objects.is_being_deleted(pod):
        return Obstacle(Phase.ENDED, "being deleted")
    if phase == "Pending":
        return Obstacle(Phase.STARTING, f"pending{_in_brackets(_why_pending(pod))}")
    if phase != "Running":
        return Obstacle(Phase.STARTING, "on a machine that does not answer")
    if ended is not None:
        return Obstacle(Phase.ENDED, f"its container {name} has ended{_in_brackets(_end(ended))}")
    if waiting is not None:
        why = _in_brackets(waiting.get("reason"))
        return Obstacle(Phase.STARTING, f"its container {name} waits{why}")
    return None


def _why_pending(pod: Json) -> str:
    """Return for what a container waits, an init container first, or why no machine takes the pod."""
    waits = [(objects.state(pod, name, "waiting") or {}).get("reason") for name in objects.containers(pod)]
    conditions = objects.status(pod).get("conditions") or []
    unscheduled = [each.get("message") for each in conditions if each.get("reason") == "Unschedulable"]
    return str(next((each for each in [*waits, *unscheduled] if each not in (None, "PodInitializing")), ""))


def _end(ended: Json) -> str:
    reason, code = str(ended.get("reason") or ""), ended.get("exitCode")
    exits = "" if code in (None, 0) else f"exit code {code}"
    return ", ".join(filter(None, ["" if reason in ("Error", "Completed") else reason, exits]))


def _in_brackets(text: object) -> str:
    return f" ({objects.line(text)})" if text else ""
