"""Finds values that Kubernetes would refuse, mostly late: the job stands already and its pods do not come.

Each rule looks at one matter of the job file as plain data, and yields all that is wrong with it. The schema
of the chart refuses the same: see `render.kubernetes.chart_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ddplaunch.agent.job_file.data import Job, Problem
from ddplaunch.plan import kubernetes_names as names

FOLDER = "/ddplaunch"
SHM = "/dev/shm"  # noqa: S108 - a mount point
ACCOUNT = "service-account"
VOLUMES = ("ddplaunch", "files", "shm", ACCOUNT)
"""Names of the volumes that a pod has without being asked."""

OUTPUTS = "ddplaunch/outputs"
"""Annotation of the pods, for the launcher: VOLUME/PATH of the folder in which the job gets its own."""

QUEUED = ("queue_priority", "topology")
AFFINITY = ("nodeAffinity", "podAffinity", "podAntiAffinity")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWN_PREFIXES = ("app.kubernetes.io/", "batch.kubernetes.io/", "ddplaunch/", "jobset.sigs.k8s.io/")
OWN_KEYS = {
    "job-name": "it is Kubernetes' own",
    "controller-uid": "it is Kubernetes' own",
    "kueue.x-k8s.io/queue-name": "set kubernetes.queue",
    "kueue.x-k8s.io/priority-class": "set kubernetes.queue_priority",
    "kueue.x-k8s.io/podset-required-topology": "set kubernetes.topology",
    "kueue.x-k8s.io/podset-preferred-topology": "set kubernetes.topology",
    "k8s.v1.cni.cncf.io/networks": "set kubernetes.networks",
}

_Found = Iterator[Problem]


def problems(job: Job) -> list[Problem]:
    """Return all that is wrong."""
    return [found for rule in _RULES for found in rule(job)]


def _image(job: Job) -> _Found:
    image = job.get("image")
    if image is None:
        yield "image", "no image", "the trainer's image", "pods run in it: python 3.9 or newer, and torch"
    elif wanted := names.image(image):
        yield "image", f'"{image}"', wanted, "the repository is in lower case, the tag comes last"


def _secrets(job: Job) -> _Found:
    for name, reference in job["secrets"].items():
        secret = reference.get("secret")
        if secret is None:
            create = f"kubectl create secret generic {job['name']} --from-literal={name}=…"
            hint = f"{create}, and {name}: {{secret: {{name: {job['name']}, key: {name}}}}}"
            yield f"secrets.{name}", "env or file", "a Secret of the cluster for --to kubernetes", hint
        elif wanted := names.secret_key(secret["key"]):
            yield f"secrets.{name}.secret.key", "no such key", wanted, ""


def _recipients(job: Job) -> _Found:
    for index, each in enumerate(job["notify"]):
        webhook, at = each.get("webhook"), f"notify[{index}].webhook"
        if webhook is None:
            continue
        secret = webhook.get("secret")
        if secret is None:
            create = f"kubectl create secret generic {job['name']} --from-literal=webhook=…"
            hint = f"{create}, and webhook: {{secret: {{name: {job['name']}, key: webhook}}}}"
            yield at, "env or file", "a Secret of the cluster for --to kubernetes", hint
        elif wanted := names.secret_key(secret["key"]):
            yield f"{at}.secret.key", "no such key", wanted, ""


def _devices(job: Job) -> _Found:
    options = job["kubernetes"]
    for key in ("gpu_resource", "rdma_resource"):
        value = options.get(key)
        if value and (form := names.resource(value)):
            yield f"kubernetes.{key}", f'"{value}"', form, ""


def _volumes(job: Job) -> _Found:
    for index, volume in enumerate(job["volumes"]):
        at = f"volumes[{index}]"
        if volume["name"] in VOLUMES:
            yield (
                f"{at}.name",
                volume["name"],
                "another name",
                "a volume of ddplaunch's own has this name",
            )
        path = volume["mount_path"].rstrip("/")
        if path == SHM:
            hint = "every pod has memory there; set its size by resources.shm"
            yield f"{at}.mount_path", path, "another folder", hint
        elif path == FOLDER or path.startswith(f"{FOLDER}/"):
            yield f"{at}.mount_path", path, "another folder", "ddplaunch's own files lie there"
        elif path == "":
            yield f"{at}.mount_path", "/", "a folder below /", "it would hide the whole image"
        if ":" in path:
            yield f"{at}.mount_path", path, "a path without ':'", "Kubernetes takes none"
        if ".." in (volume.get("host_path") or "").split("/"):
            yield f"{at}.host_path", "a path with '..'", "the folder's full path", "Kubernetes takes none"


def _keys(job: Job) -> _Found:
    options = job["kubernetes"]
    for section in ("labels", "annotations"):
        for key in options[section]:
            if key in OWN_KEYS or key.startswith(OWN_PREFIXES):
                hint = OWN_KEYS.get(key, "")
                yield f"kubernetes.{section}", f"{key}, which is set already", "a key of your own", hint
    yield from _pairs("kubernetes.labels", options["labels"])
    yield from _pairs("kubernetes.node_selector", options["node_selector"])
    for key in options["annotations"]:
        if wanted := names.key(key):
            yield "kubernetes.annotations", f'the key "{key}"', wanted, ""


def _pairs(path: str, mapping: Mapping[str, str]) -> _Found:
    for key, value in mapping.items():
        if wanted := names.key(key):
            yield path, f'the key "{key}"', wanted, ""
        if wanted := names.label_value(value):
            yield f"{path}.{key}", f'"{value}"', wanted, ""


def _scheduling(job: Job) -> _Found:
    options = job["kubernetes"]
    for index, toleration in enumerate(options["tolerations"]):
        at = f"kubernetes.tolerations[{index}]"
        key, value = toleration.get("key"), toleration.get("value")
        if key and (wanted := names.key(key)):
            yield f"{at}.key", f'"{key}"', wanted, ""
        if wanted := names.label_value(value or ""):
            yield f"{at}.value", f'"{value}"', wanted, ""
    spread, topology = options.get("topology_spread") or {}, options.get("topology") or {}
    labels = {"topology_spread.key": spread.get("key"), "gpu_type_label": options["gpu_type_label"]}
    labels |= {f"topology.{name}": value for name, value in topology.items()}
    for at, label in labels.items():
        if label and (wanted := names.key(label)):
            yield f"kubernetes.{at}", f'"{label}"', wanted, ""
    for index, network in enumerate(options["networks"]):
        if wanted := names.network(network):
            yield f"kubernetes.networks[{index}]", f'"{network}"', wanted, ""


def _kueue(job: Job) -> _Found:
    """Refuse what only Kueue reads, where no queue is named."""
    options = job["kubernetes"]
    topology = options.get("topology")
    if topology is not None and len(list(filter(None, topology.values()))) != 1:
        yield "kubernetes.topology", "both or none", "one of required, preferred", ""
    for key in QUEUED:
        if options.get(key) is not None and not options.get("queue"):
            hint = "Kueue alone heeds it, and only of jobs in its queues"
            yield f"kubernetes.{key}", "no queue", "kubernetes.queue beside it", hint


def _gpu_type(job: Job) -> _Found:
    label = job["kubernetes"]["gpu_type_label"]
    if job["resources"].get("gpu_type") and label in job["kubernetes"]["node_selector"]:
        hint = "both choose the type of GPU"
        yield "kubernetes.node_selector", label, "resources.gpu_type alone", hint


def _affinity(job: Job) -> _Found:
    """Refuse what the API server would, and terms to which ours could not be added."""
    for key, value in job["kubernetes"]["affinity"].items():
        at = f"kubernetes.affinity.{key}"
        if key not in AFFINITY:
            yield at, "an unknown key", "one of " + ", ".join(AFFINITY), ""
        elif not isinstance(value, dict):
            yield at, "no mapping", "a mapping", ""
        elif key != "nodeAffinity" and not isinstance(value.get(REQUIRED, []), list):
            yield f"{at}.{REQUIRED}", "no list", "a list of terms", ""


def _restricted(job: Job) -> _Found:
    """Return what the `restricted` Pod Security Standard forbids, so that no pod would ever be made."""
    options = job["kubernetes"]
    if not options["restricted"]:
        return
    wanted, hint = "nothing that `restricted` forbids", "leave it out, or set kubernetes.restricted: false"
    if job["watchdog"]["privileges"] == "ptrace":
        yield "watchdog.privileges", "ptrace, which is the capability SYS_PTRACE", wanted, hint
    if job["resources"].get("rdma"):
        yield "resources.rdma", "RDMA, which needs the capability IPC_LOCK", wanted, hint
    if options["host_network"]:
        yield "kubernetes.host_network", "true", wanted, hint
    if options.get("run_as_user") == 0:
        yield "kubernetes.run_as_user", "0, which is root", "another user", hint
    for index, volume in enumerate(job["volumes"]):
        if volume.get("host_path"):
            yield f"volumes[{index}].host_path", "a folder of the machine", wanted, hint


_RULES: tuple[Callable[[Job], _Found], ...] = (
    _image,
    _secrets,
    _recipients,
    _devices,
    _volumes,
    _keys,
    _scheduling,
    _kueue,
    _gpu_type,
    _affinity,
    _restricted,
)
