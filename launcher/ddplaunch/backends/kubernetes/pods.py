"""Explains why a pod does not run, or no longer runs, from its API object and events. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.system import phrases
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import GATE, HUB, PYTHON, TRAINER, Json


class PodProblem(NamedTuple):
    """A problem of one pod, or of all pods of a job. `text` completes "node 2: …"."""

    code: str  # of the catalogue
    text: str
    hint: str
    verdict: Verdict | None = None  # of its own agent, where `text` is from that


def problem(pod: Json, events: Sequence[Json] = ()) -> PodProblem | None:
    """Return why this pod does not work, or has ended. `events`: warnings about it, the newest last."""
    if objects.status(pod).get("phase") == "Succeeded":
        return None
    return (
        _disrupted(pod) or _terminated(pod) or _waiting(pod) or _not_placed(pod) or _from_events(pod, events)
    )


# --- over, or about to be

_DISRUPTED = {
    "PreemptionByScheduler": (
        "preempted by a pod of higher priority",
        "give the job a higher `kubernetes.priority_class`, or submit it again later",
    ),
    "DeletionByTaintManager": (
        "evicted: its machine has a taint that the pod does not tolerate",
        "`kubectl describe node` shows the taint; not-ready or unreachable means that the machine is lost",
    ),
    "EvictionByEvictionAPI": (
        "evicted: its machine is being drained",
        "submit it again; the machine is under maintenance",
    ),
    "DeletionByPodGC": (
        "deleted, because its machine is gone",
        "submit it again; `kubectl get nodes` shows which machines there are",
    ),
    "TerminationByKubelet": (
        "ended by its machine, which ran out of a resource or shuts down",
        "`kubectl describe node` shows its conditions; raise `resources.memory`, or leave the machine alone",
    ),
    "PreemptionByKueue": (
        "preempted: Kueue gives its resources to another job",
        "it starts again when there is room",
    ),
}


def _disrupted(pod: Json) -> PodProblem | None:
    status = objects.status(pod)
    reason, message = str(status.get("reason") or ""), objects.line(status.get("message"))
    if reason == "Evicted":
        return PodProblem(
            "node-evicted",
            f"evicted by its machine: {message or 'it ran out of a resource'}",
            "request what the job needs, such as `resources.memory`, so that the scheduler reserves it",
        )
    found = objects.condition(pod, "DisruptionTarget")
    if found is not None:
        why = str(found.get("reason") or "")
        text, hint = _DISRUPTED.get(why, (f"disrupted ({why})", "submit it again"))
        message = objects.line(found.get("message"))
        lost = (
            "unreachable" in message
            or "not-ready" in message
            or reason == "NodeLost"
            or why == "DeletionByPodGC"
        )
        code = "network-lost" if lost and _has_run(pod) else "node-missing" if lost else "node-evicted"
        return PodProblem(code, f"{text}: {message}" if message else text, hint)
    if reason == "NodeLost":
        code = "network-lost" if _has_run(pod) else "node-missing"
        return PodProblem(code, f"lost: {message or 'its machine does not answer'}", _LOST)
    if reason in (
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "NodeShutdown",
        "Terminated",
    ) or reason.startswith("OutOf"):
        return PodProblem(
            "node-missing",
            f"rejected by its machine ({reason}): {message}",
            "`kubectl describe node` shows what it has left; submit it again",
        )
    return None


_LOST = "`kubectl get nodes` shows it; Kubernetes evicts the pod after five minutes"


def _has_run(pod: Json) -> bool:
    return (objects.containers(pod).get(TRAINER) or {}).get("started") is True or bool(
        objects.state(pod, TRAINER, "terminated") or objects.state(pod, TRAINER, "running")
    )


def _terminated(pod: Json) -> PodProblem | None:
    for name in (TRAINER, GATE, HUB, PYTHON):
        status = objects.containers(pod).get(name) or {}
        for key in ("state", "lastState"):
            ended = (status.get(key) or {}).get("terminated")
            found = ended and _end(name, ended)
            if found and (key == "state" or name == HUB):
                return found
    return _killed(pod)


_BY_SIGNAL = 128
"""The exit code of a container that a signal killed is the signal's number plus this."""


def _killed(pod: Json) -> PodProblem | None:
    """Return the problem of a gate or supervisor that was killed by a signal, and could report nothing.

    In a pod that is being deleted, Kubernetes itself kills what does not stop in time.
    """
    if objects.is_being_deleted(pod):
        return None
    for container, what, code in ((TRAINER, "supervisor", "network-lost"), (GATE, "gate", "node-missing")):
        exit_code = int((objects.state(pod, container, "terminated") or {}).get("exitCode") or 0)
        if exit_code > _BY_SIGNAL:
            name = phrases.signal_name(exit_code - _BY_SIGNAL)
            return PodProblem(code, f"its {what} was killed by {name}", _SENDER)
    return None


_SENDER = "the machine may have run out of memory: see its kernel log (dmesg)"
_NEEDS_PYTHON = "the image needs a Python >= 3.9; name it as `python` in the job file"


def _end(container: str, ended: Json) -> PodProblem | None:
    """Return the problem that the container's state shows and its agent could not report."""
    reason, message = str(ended.get("reason") or ""), objects.line(ended.get("message"))
    if reason == "OOMKilled":
        return PodProblem(
            "rank-killed-memory",
            f"killed for memory: its container {container} reached its memory limit",
            "raise `resources.memory`, or let the ranks and their DataLoader workers use less",
        )
    if reason in ("StartError", "ContainerCannotRun") or "executable file not found" in message:
        return _not_started(container, message)
    if container == PYTHON and ended.get("exitCode") == Exit.UNUSABLE:
        why = message.partition(" hint: ")[0].removeprefix("error: ")
        return PodProblem("image-lacks", f"not started: {why}", _NEEDS_PYTHON)
    if reason == "ContainerStatusUnknown":
        return PodProblem("network-lost", f"lost: how its container {container} ended is not known", _LOST)
    return None


_EXEC = re.compile(r'exec: "([^"]+)": (.+?)(?:: unknown)?$')
_MOUNT = re.compile(r'error mounting "[^"]*/([^"/]+)" to rootfs at "([^"]+)": (?:.*: )?(.+)')
_STEPS = re.compile(r"runtime create failed: |runc create failed: |container (?:process|init): ")


def _not_started(container: str, message: str) -> PodProblem:
    """Return why a container did not start, by the container runtime's message."""
    lacks = _EXEC.search(message)
    if lacks is not None:
        return PodProblem(
            "image-lacks", f"not started: the image has no {lacks[1]} ({lacks[2]})", _NEEDS_PYTHON
        )
    why = _STEPS.split(message)[-1].removesuffix(": unknown")
    mount = _MOUNT.search(why)
    if mount is not None:
        why = f"{mount[1]} cannot be mounted at {mount[2]}: {mount[3]}"
    return PodProblem(
        "launch-failed",
        f"its container {container} was not started: {why or 'the container runtime does not say why'}",
        "compare `volumes` and `kubernetes.pod_template` with what the image has; where only some machines "
        "fail, `kubernetes.node_selector` keeps the job away from them",
    )


# --- not there yet


def _waiting(pod: Json) -> PodProblem | None:
    for name, status in objects.containers(pod).items():
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason, message = str(waiting.get("reason") or ""), objects.line(waiting.get("message"))
        image = str(status.get("image") or "its image")
        found = _why_waiting(name, reason, message, image)
        if found is not None:
            return found
    return None


def _why_waiting(name: str, reason: str, message: str, image: str) -> PodProblem | None:
    if reason in (
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
    ):
        return _image(reason, message, image)
    if reason in ("CreateContainerConfigError", "CreateContainerError"):
        return _configuration(reason, message)
    if reason == "RunContainerError" or "executable file not found" in message:
        return _not_started(name, message)
    if reason == "CrashLoopBackOff":
        return PodProblem(
            "image-lacks",
            f"its container {name} keeps crashing: {message}",
            "`ddplaunch logs` shows its output",
        )
    return None


def _image(reason: str, message: str, image: str) -> PodProblem:
    if reason == "ErrImageNeverPull":
        text = f"its machine has no image {image}, and may not pull it"
        hint = "load the image onto the machines, or set `kubernetes.image_pull_policy: IfNotPresent`"
    elif reason == "InvalidImageName":
        text, hint = (
            f"{image} cannot be pulled: it is not a valid image name",
            "correct `image` in the job file",
        )
    else:
        text = f"the image {image} cannot be pulled: {_pull_error(message)}"
        hint = "check `image`; a private registry needs `kubernetes.image_pull_secrets`"
    return PodProblem("node-missing", text, hint)


_WHY_NOT_PULLED = (
    ("not found", "there is no such image or tag"),
    ("does not exist", "there is no such image or tag"),
    ("pull access denied", "the registry denies access to it, or does not have it"),
    ("authorization failed", "registry authentication failed"),
    ("unauthorized", "registry authentication failed"),
    ("403 Forbidden", "the registry denies access to it"),
    ("429 Too Many", "the registry's rate limit is reached"),
    ("no such host", "the registry's name does not resolve on the machine"),
    ("connection refused", "the registry refuses the connection"),
    ("i/o timeout", "the registry does not answer"),
    ("x509", "the registry's certificate is not trusted on the machine"),
)


def _pull_error(message: str) -> str:
    known = next((words for mark, words in _WHY_NOT_PULLED if mark in message), "")
    return known or message.removeprefix("Back-off pulling image ") or "the machine does not say why yet"


def _configuration(reason: str, message: str) -> PodProblem:
    if "runAsNonRoot" in message or "non-numeric user" in message:
        why = re.sub(r" \(pod: .*", "", message)
        text = f"not started: the image runs as root, and the pod may not ({why})"
        hint = "set `kubernetes.run_as_user` to a numeric user id, or use an image that has one"
    elif match := re.search(r'(secret|configmap) "([^"]+)" not found', message):
        text = f"waiting for {match[1]} {match[2]}, which does not exist"
        hint = f"`kubectl get {match[1]}s` lists them; create it, and the pod starts"
    elif match := re.search(r"couldn't find key (\S+) in Secret (\S+)", message):
        text = f"waiting for the key {match[1]} of Secret {match[2]}, which has no key of that name"
        hint = "correct `secrets` in the job file, or add the key, and the pod starts"
    else:
        text, hint = f"not started ({reason}): {message}", "`kubectl describe pod` shows its settings"
    return PodProblem("node-missing", text, hint)


def _not_placed(pod: Json) -> PodProblem | None:
    for each in objects.status(pod).get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            message = objects.line(each.get("message"))
            if each.get("reason") == "SchedulingGated":
                return PodProblem(
                    "node-missing",
                    "held by a scheduling gate until the gate is removed",
                    "`kubectl get pod -o yaml` shows spec.schedulingGates",
                )
            return unschedulable(message)
    return None


_BESIDES = re.compile(r"\s(?:preemption: |no new claims to deallocate|still not schedulable)")
_COUNT = re.compile(r"^(\d+)/(\d+) nodes are available: ")
_HINTS = (
    ("pu", "`kubectl describe nodes` shows what is in use; lower `resources`, or wait until it is free"),
    (
        "node affinity/selector",
        (
            "compare `kubernetes.node_selector`, `kubernetes.affinity` and `resources.gpu_type` with "
            "`kubectl get nodes --show-labels`"
        ),
    ),
    (
        "anti-affinity",
        (
            "with `kubernetes.one_per_machine` or `kubernetes.host_network`, each node of the job needs its "
            "own machine; `kubernetes.affinity` may ask for more"
        ),
    ),
    ("persistentvolumeclaim", "`kubectl get pvc` lists the claims; see `volumes`"),
    ("PersistentVolume", "`kubectl get pvc` lists the claims; see `volumes`"),
    ("topology spread", "lower what `kubernetes.topology_spread` asks for"),
    ("unschedulable", "a machine is cordoned: `kubectl uncordon` lets pods onto it again"),
    (
        "taint",
        "`kubernetes.tolerations` lets the job onto machines with a taint",
    ),  # the control plane has one
)


def unschedulable(message: str) -> PodProblem:
    """Return why a pod is not scheduled, by the scheduler's message."""
    # What follows speaks of preemption, which never helps when nothing is preempted.
    why = _BESIDES.split(message)[0].rstrip(".,; ").removesuffix(". not found")
    lacks = "Insufficient" in why
    hint = _HINTS[0][1] if lacks else next((hint for mark, hint in _HINTS[1:] if mark in why), "")
    match = _COUNT.match(why)
    if match is not None:
        rest = why[match.end() :]
        why = f"none of {match[2]} machines is suitable: {rest}" if match[1] == "0" else why
    return PodProblem(
        "node-missing",
        f"not scheduled: {why}" if why else "not scheduled yet",
        hint or "`kubectl describe pod` shows what the scheduler tried",
    )


# --- what only events show

_TELLING = {
    "FailedMount": ("waiting for a volume", "see `volumes`; `kubectl get pvc` lists the claims"),
    "FailedAttachVolume": ("waiting for a volume", "another machine may still have it attached"),
    "FailedCreatePodSandBox": (
        "no network on its machine",
        "the machine's CNI plugin is at fault: `kubectl get pods --all-namespaces` shows it",
    ),
    "NodeNotReady": ("on a machine that is not ready", _LOST),
    "NetworkNotReady": ("on a machine without a network", "its CNI plugin is at fault"),
}


_CACHES = ("failed to sync", "not registered")
"""Messages of a kubelet about a volume that it mounts a second later, when its cache has the ConfigMap."""


def _from_events(pod: Json, events: Sequence[Json]) -> PodProblem | None:
    for event in reversed(events):
        known = _TELLING.get(str(event.get("reason")))
        if known is None:
            continue
        if event.get("reason") != "NodeNotReady" and objects.state(pod, TRAINER, "running"):
            continue  # that has passed
        if event.get("reason") == "NodeNotReady" and objects.condition(pod, "Ready"):
            continue
        text, hint = known
        message = objects.line(event.get("message"))
        if any(each in message for each in _CACHES):
            continue
        code = "network-lost" if event.get("reason") == "NodeNotReady" and _has_run(pod) else "node-missing"
        return PodProblem(code, f"{text}: {message}", hint)
    return None


def of_events(events: Iterable[Json]) -> PodProblem | None:
    """Return why a pod that is gone never started, from its events."""
    found = (_of_event(str(each.get("reason") or ""), objects.line(each.get("message"))) for each in events)
    return next((each for each in found if each is not None), None)


def _of_event(reason: str, message: str) -> PodProblem | None:
    if reason == "FailedScheduling":
        return unschedulable(message)
    image = re.search(r'image "([^"]+)"', message)
    if image is not None and (reason == "ErrImageNeverPull" or message.startswith("Failed to pull")):
        return _image(reason if reason == "ErrImageNeverPull" else "ErrImagePull", message, image[1])
    if reason != "Failed" or "Image" in message:
        return None
    if "executable file not found" in message:
        return _why_waiting("", "RunContainerError", message, "")
    return _configuration("CreateContainerConfigError", message.removeprefix("Error: "))


_REJECTIONS = (
    (
        r'violates PodSecurity "(restricted)(?::[^"]*)?": (.*)',
        "the namespace enforces Pod Security {}: {}",
        "set `kubernetes.restricted: true`; `kubectl get namespace --show-labels` shows what it enforces",
    ),
    (
        r'violates PodSecurity "([\w-]+)(?::[^"]*)?": (.*)',
        "the namespace enforces Pod Security {}: {}",
        "remove what the namespace forbids; `kubectl get namespace --show-labels` shows what it enforces",
    ),
    (
        r"exceeded quota: ([^,]+), (.*)",
        "the namespace's quota {} is used up: {}",
        "`kubectl describe resourcequota` shows it; request less, or end other jobs",
    ),
    (
        r'admission webhook "([^"]+)" denied the request:? ?(.*)',
        "admission webhook {}: {}",
        "`kubernetes.pod_template` can add what the webhook requires",
    ),
    (
        r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)",
        "admission policy {}: {}",
        "`kubernetes.pod_template` can add what the policy requires",
    ),
    (
        r"serviceaccount \"?([\w.-]+)\"? not found",
        "there is no service account {}",
        "`kubectl get serviceaccounts` lists them; see `kubernetes.service_account`",
    ),
    (
        r"no PriorityClass with name ([\w.-]+)",
        "there is no PriorityClass {}",
        "`kubectl get priorityclasses` lists them; see `kubernetes.priority_class`",
    ),
)
"""Pattern of the Job controller's message, why the pod was rejected, and a hint."""


def failed_create(events: Sequence[Json]) -> PodProblem | None:
    """Return why the Job controller could not create the pods; only events show that."""
    messages = [event.get("message") for event in events if event.get("reason") == "FailedCreate"]
    return _failed_create(objects.line(messages[-1])) if messages else None


def _failed_create(message: str) -> PodProblem:
    for pattern, why, hint in _REJECTIONS:
        if match := re.search(pattern, message):
            return PodProblem("node-missing", f"its pod was rejected: {why.format(*match.groups())}", hint)
    why = message.removeprefix("Error creating: ")
    return PodProblem(
        "node-missing", f"its pod cannot be created: {why}", "`kubectl describe job` shows the events"
    )


def suspended(job: Json, workload: Json | None) -> tuple[str, str]:
    """Return why a suspended job does not start, and a hint. `workload`: Kueue's object for it."""
    queue = objects.labels(job).get(objects.QUEUE, "")
    if not queue:
        command = (
            f"`kubectl patch {str(job['kind']).lower()} {objects.name(job)} --type merge "
            """-p '{"spec":{"suspend":false}}'` resumes it"""
        )
        return "it is suspended", command
    if workload is None:
        priority = objects.labels(job).get(objects.QUEUE_PRIORITY)
        asks = f"is there a WorkloadPriorityClass {priority}, and does" if priority else "does"
        return (
            f"it waits for queue {queue}, and Kueue has not seen it yet",
            f"{asks} Kueue manage this namespace? `kubectl get workloads` lists what it has seen",
        )
    conditions = {each.get("type"): each for each in objects.status(workload).get("conditions") or []}
    evicted, admitted = conditions.get("Evicted"), conditions.get("QuotaReserved")
    text = f"it waits in queue {queue}"
    if evicted is not None and evicted.get("status") == "True":
        text = f"it was evicted and waits in queue {queue} again ({_evicted(evicted)})"
    if admitted is not None and admitted.get("status") != "True":
        text += f": {objects.line(admitted.get('message'))}"
        if admitted.get("reason") == "Inadmissible":
            return text, "`kubectl get localqueues` lists the queues; see `kubernetes.queue`"
        if re.search(r"requested level|TopologyAwareScheduling", text):
            return text, "`kubectl get topologies` lists the levels; see `kubernetes.topology`"
    return text, "`kubectl get workloads` shows which jobs run; it starts when there is room"


def _evicted(condition: Json) -> str:
    why = objects.line(condition.get("message"))
    return f"{condition.get('reason')}: {why}" if why else str(condition.get("reason"))
