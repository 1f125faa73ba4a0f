"""Finds the pods of a job that ddplaunch did not start, and in each pod the container in which its
ranks run.
"""

from __future__ import annotations

import re
import time
from typing import Final, NamedTuple
from urllib.parse import unquote

from ddplaunch.agent.contract import Phase, PhaseName
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.api import Api, RefusedError
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError, NotFoundError, UsageError


class Kind(NamedTuple):
    """A kind of object that owns pods. `label`: the pods' label with its name; "": its spec names them.

    `groups`: a label of pods whose values, 0 and on, tell apart the jobs of one object; "": it has one job.
    """

    word: str
    spellings: tuple[str, ...]
    version: str
    resource: str
    label: str
    groups: str = ""

    @property
    def full(self) -> str:
        """Return the resource's name for kubectl, which is clear whatever else is installed."""
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
    # Kubeflow's Trainer turns it into a JobSet of the same name.
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
"""Names that operators and their examples give to the ranks' container, the most telling first."""


class Target(NamedTuple):
    """An object that owns pods, or the pods' labels, as the user has named it."""

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
        """Return what comes after kubernetes:// in its handle."""
        if self.kind is None:
            return f"{self.namespace}?selector={self.selector}"
        return f"{self.namespace}/{self.kind.spellings[0]}/{self.name}"

    @property
    def one_job(self) -> str:
        """Return what to name instead if its pods belong to several jobs; "" if that is not known."""
        if self.kind is None or not self.kind.groups:
            return ""
        return f"kubernetes://{self.namespace}?selector={self.kind.label}={self.name},{self.kind.groups}=0"


def parse(path: str) -> Target:
    """Return what the text after kubernetes:// names. Raises UsageError for an unknown kind."""
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
            f"{named[2]} is not a kind of object whose pods ddplaunch can find",
            hint=f"one of {known}; name pods of any other kind by labels: "
            f"'kubernetes://{named[1]}?selector=KEY=VALUE', `kubectl get pods --show-labels` shows these",
        )
    return Target(named[1], kind, named[3])


def _spells(word: str, kind: Kind) -> bool:
    """Whether `word` means this kind, as it would for kubectl: job, jobs, job.batch, jobs.batch."""
    short, dot, group = word.partition(".")
    if dot and group != objects.group(kind.version):
        return False
    own = kind.resource.removesuffix("s")
    return short in ((own, kind.resource) if dot else (*kind.spellings, f"{kind.spellings[0]}s"))


def find(api: Api, target: Target) -> list[Json]:
    """Return the pods, those of a job in the order of its nodes. Raises NotFoundError and ClusterError."""
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
        return objects.items(api.get(path, "list pods", {"labelSelector": selector}))
    except RefusedError as error:
        if error.status != 400:
            raise
        raise UsageError(
            f"the API server does not read the selector {selector!r}: {error.message}",
            hint="as for `kubectl get pods --selector`: KEY=VALUE,KEY=VALUE",
        ) from error


def _find(api: Api, kind: Kind, target: Target) -> Json | None:
    path = f"{objects.collection(kind.version, kind.resource, target.namespace)}/{target.name}"
    return api.find(path, f"look at {kind.word} {target.name}")


def _selector(found: Json) -> str:
    """Return the selector in an object's spec, in the form that a query takes."""
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
    except RefusedError:  # this user may list pods, but not look at what owns them
        return NotFoundError(
            f"there are no pods of {target}", hint=f"`kubectl get pods -n {namespace}` shows what is there"
        )
    if is_there:
        why = f"`kubectl describe {kind.full} {target.name} -n {namespace}` shows why"
        return NotFoundError(f"{target} has no pods", hint=why)
    return NotFoundError(f"there is no {target}", hint=f"`kubectl get {kind.full} -n {namespace}` lists them")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return the name as a sort key by which worker-2 comes before worker-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def container(pod: Json) -> tuple[str, int]:
    """Return the container in which the ranks run, as far as names tell, and how many containers the
    pod has.
    """
    names = [str(each.get("name", "")) for each in objects.spec(pod).get("containers") or []]
    chosen = (objects.metadata(pod).get("annotations") or {}).get(_DEFAULT, "")
    labels = objects.metadata(pod).get("labels") or {}
    # mpi-operator gives sshd's keys to the first one, whatever its name is.
    known = [name for name in _CONTAINERS if name in names and labels.get(_OPERATOR) != "mpi-operator"]
    return next((name for name in (chosen, *known, *names) if name in names), ""), len(names)


class Obstacle(NamedTuple):
    """Why nothing can run in a pod's container now. `text` follows the pod's name and a colon."""

    phase: PhaseName
    text: str


def obstacle(pod: Json, name: str) -> Obstacle | None:
    """Return why a command cannot run in this container; None if it can."""
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
    """Return what a container waits for, an init container first, or why no machine takes the pod."""
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


PREFIX: Final = "ddplaunch-debug-"
_START: Final = 90.0
"""Seconds for the image to be pulled and the container to run."""
_POLL: Final = 1.0
_COMES: Final = ("", "ContainerCreating", "PodInitializing", "ErrImagePull")
"""Reasons to wait for a container that may still come: a pull that has failed is tried again at once."""
_IDLES: Final = """
import os, sys, time

def namespace(pid):
    try:
        return os.readlink("/proc/%s/ns/mnt" % pid)
    except OSError:
        return ""

first, most = map(float, sys.argv[1:])
own, began, looked = namespace("self"), time.monotonic(), 0
while time.monotonic() - began < most:
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
    if own in map(namespace, pids):
        looked = time.monotonic()
    elif time.monotonic() > (looked + 2 if looked else began + first):
        break
    time.sleep(0.5)
"""
"""Ends two seconds after the last look, because its container has no other process.

Its arguments: how many seconds it waits for the first look, and how many it lasts at most.
"""
_FIRST: Final = _START + 60.0
"""Seconds until a look comes, which is when the containers of all pods are there."""
_MOST: Final = 300.0
_MERGED: Final = "application/strategic-merge-patch+json"
_OTHERWISE: Final = (
    "without --debug-image, stacks need python3 in the pod's image and a node whose sysctl "
    "kernel.yama.ptrace_scope is 0; on the node itself, root sees them with `ddplaunch diagnose pid:PID`; "
    "next time, start the job with `ddplaunch run -- COMMAND`, which records its calls without any special "
    "right"
)


class _NotStartedError(Exception):
    """This pod can have no such container. The text says why."""


class Debugger(NamedTuple):
    """A container that runs in a pod, or why there is none. `is_shared`: another look has made it."""

    name: str
    is_shared: bool = False
    why: str = ""


def started(api: Api, namespace: str, pod: str, target: str, image: str, gone: str = "") -> Debugger:
    """Return a container of this image in the pod that sees the processes of the container `target`.

    If one is there already it is used, unless it is `gone`. Raises ClusterError if no pod in the namespace
    may have one.
    """
    path = f"{objects.collection('v1', 'pods', namespace)}/{pod}"
    name = ""
    try:
        found = _pod(api, path, pod)
        name = _usable(found, target, image, gone)
        is_shared = bool(name)
        if not is_shared:
            name = f"{PREFIX}{1 + len(objects.spec(found).get('ephemeralContainers') or [])}"
            _add(api, path, namespace, pod, _container(name, target, image))
        _await(api, path, pod, name, image)
    except _NotStartedError as error:
        return Debugger(name, why=str(error))
    return Debugger(name, is_shared)


def _pod(api: Api, path: str, pod: str) -> Json:
    found = api.find(path, f"look at pod {pod}")
    if found is None:
        raise _NotStartedError("it is gone")
    return found


def _usable(pod: Json, target: str, image: str, gone: str) -> str:
    for each in objects.spec(pod).get("ephemeralContainers") or []:
        name = str(each.get("name", ""))
        is_such = each.get("image") == image and each.get("targetContainerName") == target
        if name.startswith(PREFIX) and is_such and name != gone and "terminated" not in _state(pod, name):
            return name
    return ""


def _container(name: str, target: str, image: str) -> Json:
    """Return it in the form of the pod's spec.

    For any user except root a capability has no effect. Without the capabilities that are dropped, root
    cannot read the files of the ranks' user, such as /proc/PID/environ, unless it has DAC_OVERRIDE.
    """
    return {
        "name": name,
        "image": image,
        "targetContainerName": target,
        "command": ["python3", "-I", "-S", "-c", _IDLES, f"{_FIRST:.0f}", f"{_MOST:.0f}"],
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,  # even if the pod says otherwise
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "SYS_PTRACE"]},
        },
    }


def _add(api: Api, path: str, namespace: str, pod: str, container: Json) -> None:
    body = {"spec": {"ephemeralContainers": [container]}}
    what = f"add a container to pod {pod}"
    try:
        api.request("PATCH", f"{path}/ephemeralcontainers", what, body=body, kind=_MERGED)
    except RefusedError as error:
        if error.status == 403:
            raise _not_allowed(error, namespace) from error
        raise _NotStartedError(error.message) from error


def _not_allowed(error: RefusedError, namespace: str) -> ClusterError:
    if "may not patch pods/ephemeralcontainers" in error.message:
        return ClusterError(
            error.message,
            hint='for --debug-image a Role there needs {apiGroups: [""], resources: '
            "[pods/ephemeralcontainers], verbs: [patch]} as well: docs/how-to/diagnose.md has the whole Role",
        )
    _, security, what = error.message.partition("violates PodSecurity")
    if security:
        return ClusterError(
            f"the Pod Security of namespace {namespace} does not let a container trace, which that of "
            f"--debug-image does (SYS_PTRACE, as root):{what}",
            hint=_OTHERWISE,
        )
    return ClusterError(error.message, hint=_OTHERWISE)


def _await(api: Api, path: str, pod: str, name: str, image: str) -> None:
    """Return when it is running. Raises _NotStartedError."""
    deadline = time.monotonic() + _START
    while True:
        state = _state(_pod(api, path, pod), name)
        if "running" in state:
            return
        if "terminated" in state:
            raise _NotStartedError(_why_ended(state["terminated"], image))
        waiting = state.get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), objects.line(waiting.get("message"))
        why = f"{reason}: {message}" if message else reason
        if reason not in _COMES:
            raise _NotStartedError(f"its container of the image {image} does not start: {why}")
        if time.monotonic() > deadline:
            late = f" ({why})" if why else ""
            raise _NotStartedError(
                f"its container of the image {image} has not started in {_START:.0f} s{late}"
            )
        time.sleep(_POLL)


def _state(pod: Json, name: str) -> Json:
    statuses = objects.status(pod).get("ephemeralContainerStatuses") or []
    return next((each.get("state") or {} for each in statuses if each.get("name") == name), {})


def _why_ended(ended: Json, image: str) -> str:
    message = objects.line(ended.get("message")) or str(ended.get("reason") or "")
    if "python3" in message and ("not found" in message or "no such file" in message):
        return f"the image {image} has no python3, which is needed to look at the pod"
    return f"its container of the image {image} has ended: {message or 'without a reason'}"
