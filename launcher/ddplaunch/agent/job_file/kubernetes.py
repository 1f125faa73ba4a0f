"""Finds what Kubernetes, or its pods, could not do although each value by itself is right. Pure.

Each rule looks at one matter of the job file as plain data, and yields everything that is wrong with it. What
is wrong with a single value is found by `plan.kubernetes` and, for a Helm chart, by its schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ddplaunch.agent.job_file.rules import Job, Problem
from ddplaunch.agent.job_file.units import format_duration, format_quantity
from ddplaunch.agent.plan import KILL_AFTER

HUB_PORT = 29400
"""Pods have their own network, so the port can be the same in all of them and known beforehand."""

OLDEST = (1, 29)
"""The first version in which native sidecars are switched on."""
OLDEST_ELASTIC = (1, 31)
"""The first version in which a Job's `successPolicy` is switched on."""

SHORTEST_GRACE = 60
"""Seconds from SIGTERM: 5 for evidence, 30 for torchrun's patience with its workers, 15 for the hub's end."""

LABEL = 63
_DOMAIN = 253
POD_SUFFIX = "-xxxxx"
_TEMPLATE = "kubernetes.pod_template"

_Problems = Iterator[Problem]


def problems(job: Job) -> list[Problem]:
    """Return everything that Kubernetes cannot do."""
    return [problem for rule in _RULES for problem in rule(job)]


def hub_port(job: Job) -> int:
    """Return the hub's port; 0: every node derives it from the key, because jobs share a machine's
    network.
    """
    given: Any = job["gate"].get("port")
    if given is not None:
        return int(given)
    if job["kubernetes"]["host_network"]:
        return 0
    return HUB_PORT + 1 if job["rendezvous"].get("port") == HUB_PORT else HUB_PORT


def _launch(job: Job) -> _Problems:
    program = {"mpi": "mpirun", "srun": "srun"}.get(job["launch"])
    if program:
        hint = f"{program} needs a way to start processes in other pods, and there is none"
        yield "launch", job["launch"], "torchrun or none for --to kubernetes", hint


def name_room(nodes: int) -> int:
    """Return how long the name of a JobSet with so many nodes may be, because of its pods' names."""
    return LABEL - len(f"-node-0-{nodes - 1}{POD_SUFFIX}")


def _lengths(job: Job) -> _Problems:
    """Yield problems of names that Kubernetes makes from the job's: it refuses them only when the job is
    there already.
    """
    name, last = job["name"], str(job["nodes"] - 1)
    options = job["kubernetes"]
    if options["jobset"]:
        room = name_room(job["nodes"])
        if len(name) > room:
            size, hint = f"{len(name)} characters", "a JobSet makes longer names of its pods than a Job"
            yield "name", size, f"at most {room} with kubernetes.jobset and {job['nodes']} nodes", hint
    queue = options.get("queue") or ""
    if len(queue) > LABEL:
        hint = "Kueue reads it from a label, and a label's value is no longer"
        yield "kubernetes.queue", f"{len(queue)} characters", f"at most {LABEL}", hint
    namespace = options.get("namespace") or "x" * LABEL
    node = f"{name}-node-0-{last}" if options["jobset"] else f"{name}-{last}"
    full = len(f"{node}.{name}.{namespace}.svc.{options.get('cluster_domain') or ''}")
    if full > _DOMAIN:
        size = f"a name of {full} characters for a node"
        yield "kubernetes.cluster_domain", size, f"at most {_DOMAIN}", "no resolver takes a longer one"


def _retries(job: Job) -> _Problems:
    if job["retries"] and not job["kubernetes"]["jobset"]:
        hint = "a Job replaces single pods, not the gang: set kubernetes.jobset: true, which needs JobSet"
        yield "retries", f"{job['retries']}", "0, or kubernetes.jobset", hint


def _newcomers(job: Job) -> _Problems:
    if job.get("newcomers") == "join" and job["kubernetes"]["jobset"]:
        hint = "each counts the attempts by itself: one of its next would bear the number of an earlier one"
        yield "newcomers", "join with kubernetes.jobset", "refuse", hint


def _resume(job: Job) -> _Problems:
    """Refuse a checkpoint folder that goes when its pod does. A pod template may mount one that is not seen
    here.
    """
    folder = job["resume"].get("dir")
    kept = [f"{each['mount_path']}/" for each in job["volumes"] if not each.get("empty_dir")]
    if folder and not job["kubernetes"]["pod_template"] and not f"{folder}/".startswith((*kept,)):
        yield "resume.dir", folder, "a folder on one of `volumes`", "what a pod writes elsewhere goes with it"


def _resources(job: Job) -> _Problems:
    resources, options = job["resources"], job["kubernetes"]
    shm, memory = resources.get("shm"), resources.get("memory")
    if shm and memory and shm >= memory:
        wanted = f"less than resources.memory, which is {format_quantity(memory)}"
        hint = "what lies in /dev/shm counts as the pod's memory: a job that filled it would be killed"
        yield "resources.shm", format_quantity(shm), wanted, hint
    if resources.get("rdma") and options.get("rdma_resource") is None:
        hint = "kubectl describe node shows what the device plugin offers, such as rdma/hca"
        yield "kubernetes.rdma_resource", "nothing", "the name of what resources.rdma counts", hint


def _host_network(job: Job) -> _Problems:
    if job["kubernetes"]["host_network"] and job["kubernetes"]["network_policy"] == "pods":
        hint = "a NetworkPolicy says nothing about pods on a machine's own network: leave one of the two out"
        yield "kubernetes.network_policy", "pods with host_network", "none", hint


def _outputs(job: Job) -> _Problems:
    """Refuse a second folder for the ranks to run in, and a script that is in neither folder."""
    if job.get("outputs") is None:
        return
    if job.get("workdir") is not None:
        hint = "both say where the ranks run: leave one of them out"
        yield "workdir", "workdir with outputs", "one of the two", hint
    script = job["command"][0]
    if job["launch"] == "torchrun" and not job.get("source") and re.fullmatch(r"[^-/].*\.py", script):
        hint = "the ranks run in a new folder: give the full path of a script in the image, or use `source`"
        yield "command[0]", f'"{script}" with outputs', "a full path, or `source`", hint


def _metrics(job: Job) -> _Problems:
    port = job["metrics"].get("port")
    if port is not None and port == hub_port(job):
        yield "metrics.port", f"{port}, which is the hub's", "a port of its own", "for example 9400"


def _deadlines(job: Job) -> _Problems:
    """Refuse a Kubernetes deadline that would end the job before its own watchdog has taken evidence."""
    deadline, kill = job["kubernetes"].get("active_deadline"), job["watchdog"]["kill_after"]
    kill = KILL_AFTER if kill == "auto" else kill
    if deadline is not None and not isinstance(kill, str) and kill >= deadline:
        wanted = f"more than watchdog.kill_after, which is {format_duration(kill)}"
        hint = "a job that hangs would be ended before the watchdog says why: shorten watchdog.kill_after"
        yield "kubernetes.active_deadline", format_duration(deadline), wanted, hint


def _grace(job: Job) -> _Problems:
    """Refuse a grace period that would end before the ranks have had the time that `signal` promises them."""
    spec = job["kubernetes"]["pod_template"].get("spec")
    given = spec.get("terminationGracePeriodSeconds") if isinstance(spec, dict) else None
    signal = job.get("signal")
    if signal is None or not isinstance(given, int):
        return
    wanted = SHORTEST_GRACE + math.ceil(signal["before"])
    if given < wanted:
        hint = (
            f"signal.before, which is {format_duration(signal['before'])}, and {SHORTEST_GRACE} s for the end"
        )
        at = f"{_TEMPLATE}.spec.terminationGracePeriodSeconds"
        yield at, f"{given}", f"{wanted} or more, or leave it out", hint


def _version(job: Job) -> _Problems:
    options = job["kubernetes"]
    given = options.get("version")
    if given is None:
        return
    version = tuple(map(int, given.split(".")))
    if version < OLDEST:
        hint = "older clusters do not start sidecars before the gate"
        yield "kubernetes.version", given, f"{'.'.join(map(str, OLDEST))} or newer", hint
    elif job.get("min_nodes") and version < OLDEST_ELASTIC:
        wanted = f"{'.'.join(map(str, OLDEST_ELASTIC))} or newer for a range of nodes"
        hint = "an older Job is complete when all its pods are, and would wait for those that never come"
        yield "kubernetes.version", given, wanted, hint
    for path, since in newer(options["pod_template"], version[1]):
        at, hint = f"{_TEMPLATE}.{path}", "an older cluster refuses the field, or drops it silently"
        yield at, f"a field that Kubernetes {given} lacks", f"version 1.{since} or newer", hint


def _devices(job: Job) -> _Problems:
    """Apply `devices` to what the user's pod template adds to the devices in the job file."""
    resources, options = job["resources"], job["kubernetes"]
    counts = {
        options["gpu_resource"]: resources.get("gpus"),
        options.get("rdma_resource"): resources.get("rdma"),
    }
    ours = {name: str(count) for name, count in counts.items() if name and count}
    gate, trainer = (
        {**patch, "limits": {**ours, **(patch.get("limits") or {})}}
        for patch in (_resources_of(name, options["pod_template"]) for name in ("gate", "trainer"))
    )
    for path, wanted, why in devices(gate, trainer):
        yield f"{_TEMPLATE}.{path}", "a change that breaks the gate", wanted, why


def devices(gate: Mapping[str, Any], trainer: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the path, what is wanted and why, if the two containers' resources have different devices.

    Each container is given its own devices: a gate without them would prove nothing about them.
    """
    at, why = "spec.initContainers[gate].resources", "the gate checks the devices that the trainer has"
    wanted, given = trainer.get("limits") or {}, gate.get("limits") or {}
    for name, count in wanted.items():
        if "/" in name and count is not None and given.get(name) != count:
            yield f"{at}.limits.{name}", f'"{count}", as the trainer has it', why
    if gate.get("claims") != trainer.get("claims"):
        yield f"{at}.claims", "the claims of the trainer", why


def _resources_of(container: str, template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources that `template`, whatever its shape, has for one of our containers."""
    spec = template.get("spec")
    for key in ("initContainers", "containers"):
        listed = spec.get(key) if isinstance(spec, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and each.get("name") == container:
                resources = each.get("resources")
                return resources if isinstance(resources, dict) else {}
    return {}


_RULES: tuple[Callable[[Job], _Problems], ...] = (
    _launch,
    _lengths,
    _retries,
    _newcomers,
    _resume,
    _resources,
    _host_network,
    _outputs,
    _metrics,
    _deadlines,
    _grace,
    _version,
    _devices,
)


SINCE: dict[tuple[str, str], int] = {
    ("securityContext", "appArmorProfile"): 30,
    ("volumeMounts", "recursiveReadOnly"): 30,
    ("claims", "request"): 31,
    ("resourceClaims", "resourceClaimName"): 31,
    ("resourceClaims", "resourceClaimTemplateName"): 31,
    ("securityContext", "supplementalGroupsPolicy"): 31,
    ("volumes", "image"): 31,
    ("securityContext", "seLinuxChangePolicy"): 32,
    ("pod", "resources"): 32,
    ("lifecycle", "stopSignal"): 33,
    ("containers", "restartPolicyRules"): 34,
    ("initContainers", "restartPolicyRules"): 34,
    ("sources", "podCertificate"): 34,
    ("pod", "hostnameOverride"): 34,
    ("valueFrom", "fileKeyRef"): 34,
    ("podCertificate", "userAnnotations"): 35,
    ("pod", "schedulingGroup"): 36,
    ("emptyDir", "mode"): 37,
    ("httpGet", "protocol"): 37,
    ("grpc", "mode"): 37,
    ("pod", "evictionResponders"): 37,
    ("volumeMounts", "bindMountOptions"): 37,
    **{(kind, "defaultUser"): 37 for kind in ("configMap", "downwardAPI", "projected", "secret")},
    **{
        (kind, "user"): 37
        for kind in ("items", "clusterTrustBundle", "podCertificate", "serviceAccountToken")
    },
}
"""Fields of a pod template, by the key above and their own key, with the minor version that brought each.

`pod` is the pod's spec, because claims have a spec too. An older cluster would not know them. They come from
the OpenAPI schemas; ddplaunch itself writes none of them.
"""


def newer(overlay: Any, minor: int, path: str = "", above: str = "") -> Iterator[tuple[str, int]]:
    """Yield paths in `overlay` that version 1.`minor` does not know, each with the version that does."""
    if isinstance(overlay, list):
        for index, item in enumerate(overlay):
            name = item.get("name", index) if isinstance(item, dict) else index
            yield from newer(item, minor, f"{path}[{name}]", above)
    elif isinstance(overlay, dict):
        for key, value in overlay.items():
            at = f"{path}.{key}" if path else key
            if (since := SINCE.get((above, key), 0)) > minor:
                yield at, since
            else:
                yield from newer(value, minor, at, "pod" if at == "spec" else key)
