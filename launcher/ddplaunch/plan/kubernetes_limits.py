"""Finds what Kubernetes would refuse, mostly late: when the job stands already and its pods do not come.

Each rule looks at one matter and yields all that is wrong with it, as `(path, found, wanted, hint)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ddplaunch.plan import kubernetes_fields as fields
from ddplaunch.plan import kubernetes_names as names
from ddplaunch.spec.problems import Problem
from ddplaunch.spec.units import format_duration, format_quantity

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

OLDEST = (1, 29)
"""The first version that has native sidecars switched on."""

FOLDER = "/ddplaunch"
SHM = "/dev/shm"  # noqa: S108 - a mount point
VOLUMES = ("ddplaunch", "files", "shm")
"""Names of the volumes that every pod has."""

_OWN_KEYS = (
    "app.kubernetes.io/",
    "batch.kubernetes.io/",
    "ddplaunch/",
    "jobset.sigs.k8s.io/",
)
_OWN = {
    "job-name": "it is Kubernetes' own",
    "controller-uid": "it is Kubernetes' own",
    "kueue.x-k8s.io/queue-name": "set kubernetes.queue",
    "k8s.v1.cni.cncf.io/networks": "set kubernetes.networks",
}

_LABEL = 63
_DOMAIN = 253
_POD_SUFFIX = "-xxxxx"

_Found = Iterator[tuple[str, str, str, str]]


def problems(spec: JobSpec) -> list[Problem]:
    """Return all that `--to kubernetes` cannot do."""
    return [
        Problem(file=spec.name, path=path, found=found, wanted=wanted, hint=hint)
        for rule in _RULES
        for path, found, wanted, hint in rule(spec)
    ]


def _image(spec: JobSpec) -> _Found:
    if spec.image is None:
        yield "image", "no image", "the trainer's image", "pods run in it: python 3.9 or newer, and torch"
    elif wanted := names.image(spec.image):
        yield "image", f'"{spec.image}"', wanted, "the repository is in lower case, the tag comes last"


def _launch(spec: JobSpec) -> _Found:
    if spec.launch == "mpi":
        hint = (
            "mpirun needs a way to start processes in other pods; on Kubernetes ddplaunch has torchrun only"
        )
        yield "launch", "mpi", "torchrun for --to kubernetes", hint


def _secrets(spec: JobSpec) -> _Found:
    for name, reference in spec.secrets.items():
        if reference.secret is None:
            create = f"kubectl create secret generic {spec.name} --from-literal={name}=…"
            hint = f"{create}, and {name}: {{secret: {{name: {spec.name}, key: {name}}}}}"
            yield f"secrets.{name}", "env or file", "a Secret of the cluster for --to kubernetes", hint
        elif wanted := names.secret_key(reference.secret.key):
            yield f"secrets.{name}.secret.key", "no such key", wanted, ""


def _lengths(spec: JobSpec) -> _Found:
    """Names that Kubernetes makes of the job's: it refuses them when the job stands already."""
    last = str(spec.nodes - 1)
    options = spec.kubernetes
    if options.jobset:
        room = _LABEL - len(f"-node-0-{last}{_POD_SUFFIX}")
        if len(spec.name) > room:
            found, hint = f"{len(spec.name)} characters", "a JobSet makes longer names of its pods than a Job"
            yield "name", found, f"at most {room} with kubernetes.jobset and {spec.nodes} nodes", hint
    if options.queue and len(options.queue) > _LABEL:
        hint = "Kueue reads it from a label, and a label's value is no longer"
        yield "kubernetes.queue", f"{len(options.queue)} characters", f"at most {_LABEL}", hint
    namespace = options.namespace or "x" * _LABEL
    node = f"{spec.name}-node-0-{last}" if options.jobset else f"{spec.name}-{last}"
    full = len(f"{node}.{spec.name}.{namespace}.svc.{options.cluster_domain or ''}")
    if full > _DOMAIN:
        found = f"a name of {full} characters for a node"
        yield "kubernetes.cluster_domain", found, f"at most {_DOMAIN}", "no resolver takes a longer one"


def _retries(spec: JobSpec) -> _Found:
    if spec.retries and not spec.kubernetes.jobset:
        hint = "a Job replaces single pods, not the gang: set kubernetes.jobset: true, which needs JobSet"
        yield "retries", f"{spec.retries}", "0, or kubernetes.jobset", hint


def _resources(spec: JobSpec) -> _Found:
    asked, options = spec.resources, spec.kubernetes
    if asked.shm and asked.memory and asked.shm >= asked.memory:
        wanted = f"less than resources.memory, which is {format_quantity(asked.memory)}"
        hint = "what lies in /dev/shm counts as the pod's memory: a job that filled it would be killed"
        yield "resources.shm", format_quantity(asked.shm), wanted, hint
    if asked.rdma and options.rdma_resource is None:
        hint = "kubectl describe node shows what the device plugin offers, such as rdma/hca"
        yield "kubernetes.rdma_resource", "nothing", "the name of what resources.rdma counts", hint
    resources: dict[str, str | None] = {
        "gpu_resource": options.gpu_resource,
        "rdma_resource": options.rdma_resource,
    }
    for key, value in resources.items():
        if value and (form := names.resource(value)):
            yield f"kubernetes.{key}", f'"{value}"', form, ""


def _volumes(spec: JobSpec) -> _Found:
    for index, volume in enumerate(spec.volumes):
        at = f"volumes[{index}]"
        if volume.name in VOLUMES:
            yield (
                f"{at}.name",
                volume.name,
                "another name",
                "every pod of ddplaunch has a volume of this name",
            )
        path = volume.mount_path.rstrip("/")
        if path == SHM:
            hint = "every pod has memory there; set its size by resources.shm"
            yield f"{at}.mount_path", path, "another folder", hint
        elif path == FOLDER or path.startswith(f"{FOLDER}/"):
            yield f"{at}.mount_path", path, "another folder", "ddplaunch's own files lie there"
        elif path == "":
            yield f"{at}.mount_path", "/", "a folder below /", "it would hide the whole image"
        if ":" in path:
            yield f"{at}.mount_path", path, "a path without ':'", "Kubernetes takes none"
        if ".." in (volume.host_path or "").split("/"):
            yield f"{at}.host_path", "a path with '..'", "the folder's full path", "Kubernetes takes none"


def _keys(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    for section, mapping in (("labels", options.labels), ("annotations", options.annotations)):
        for key in mapping:
            if key in _OWN or key.startswith(_OWN_KEYS):
                hint = _OWN.get(key, "")
                yield f"kubernetes.{section}", f"{key}, which is set already", "a key of your own", hint
    yield from _pairs("kubernetes.labels", options.labels)
    yield from _pairs("kubernetes.node_selector", options.node_selector)
    for key in options.annotations:
        if wanted := names.key(key):
            yield "kubernetes.annotations", f'the key "{key}"', wanted, ""


def _pairs(path: str, mapping: Mapping[str, str]) -> _Found:
    for key, value in mapping.items():
        if wanted := names.key(key):
            yield path, f'the key "{key}"', wanted, ""
        if wanted := names.label_value(value):
            yield f"{path}.{key}", f'"{value}"', wanted, ""


def _scheduling(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    for index, toleration in enumerate(options.tolerations):
        at = f"kubernetes.tolerations[{index}]"
        if toleration.key and (wanted := names.key(toleration.key)):
            yield f"{at}.key", f'"{toleration.key}"', wanted, ""
        if wanted := names.label_value(toleration.value or ""):
            yield f"{at}.value", f'"{toleration.value}"', wanted, ""
    if options.topology_spread and (wanted := names.key(options.topology_spread.key)):
        yield "kubernetes.topology_spread.key", f'"{options.topology_spread.key}"', wanted, ""
    for index, network in enumerate(options.networks):
        if wanted := names.network(network):
            yield f"kubernetes.networks[{index}]", f'"{network}"', wanted, ""


def _host_network(spec: JobSpec) -> _Found:
    if spec.kubernetes.host_network and spec.kubernetes.network_policy == "pods":
        hint = "a NetworkPolicy says nothing about pods on a machine's own network: leave one of the two out"
        yield "kubernetes.network_policy", "pods with host_network", "none", hint


def _restricted(spec: JobSpec) -> _Found:
    """Return what the `restricted` Pod Security Standard forbids, so that no pod would ever be made."""
    options = spec.kubernetes
    if not options.restricted:
        return
    wanted, hint = "nothing that `restricted` forbids", "leave it out, or set kubernetes.restricted: false"
    if spec.watchdog.privileges == "ptrace":
        yield "watchdog.privileges", "ptrace, which is the capability SYS_PTRACE", wanted, hint
    if spec.resources.rdma:
        yield "resources.rdma", "RDMA, which needs the capability IPC_LOCK", wanted, hint
    if options.host_network:
        yield "kubernetes.host_network", "true", wanted, hint
    if options.run_as_user == 0:
        yield "kubernetes.run_as_user", "0, which is root", "another user", hint
    for index, volume in enumerate(spec.volumes):
        if volume.host_path:
            yield f"volumes[{index}].host_path", "a folder of the machine", wanted, hint


def _deadlines(spec: JobSpec) -> _Found:
    """The job's own end comes with evidence; Kubernetes' comes without."""
    deadline, kill = spec.kubernetes.active_deadline, spec.watchdog.kill_after
    if deadline is not None and not isinstance(kill, str) and kill >= deadline:
        wanted = f"more than watchdog.kill_after, which is {format_duration(kill)}"
        hint = "a job that hangs would be ended before the watchdog says why: shorten watchdog.kill_after"
        yield "kubernetes.active_deadline", format_duration(deadline), wanted, hint


def _version(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    if options.version is None:
        return
    version = tuple(map(int, options.version.split(".")))
    if version < OLDEST:
        hint = "older clusters do not start sidecars before the gate"
        yield "kubernetes.version", options.version, f"{'.'.join(map(str, OLDEST))} or newer", hint
    for path, since in fields.newer(options.pod_template, version[1]):
        at, hint = (
            f"kubernetes.pod_template.{path}",
            "an older cluster refuses the field, or drops it silently",
        )
        yield at, f"a field that Kubernetes {options.version} lacks", f"version 1.{since} or newer", hint


_RULES: tuple[Callable[[JobSpec], _Found], ...] = (
    _image,
    _launch,
    _secrets,
    _lengths,
    _retries,
    _resources,
    _volumes,
    _keys,
    _scheduling,
    _host_network,
    _restricted,
    _deadlines,
    _version,
)
