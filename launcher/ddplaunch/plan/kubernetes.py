"""Plans what a job file asks of Kubernetes, beyond what every node is told, and what it would refuse.

Kubernetes refuses many values late, when the job is there already and its pods do not come. Each rule looks
at one matter and yields everything that is wrong with it. What several values make wrong together is found by
`agent.job_file`. The chart's schema refuses the same things: see `render.kubernetes.chart_values`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.plan import target
from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, Outputs, SecretKey, Volume
    from ddplaunch.spec.problems import Problem
    from ddplaunch.spec.targets import Kubernetes


@dataclass(frozen=True)
class KubernetesPlan:
    """`options` are the job file's own. The rest comes from other sections, and only Kubernetes reads it."""

    image: str
    options: Kubernetes
    volumes: tuple[Volume, ...] = ()
    outputs: Outputs | None = None
    secrets: Mapping[str, SecretKey] = field(default_factory=dict)
    webhooks: Mapping[int, SecretKey] = field(default_factory=dict)  # by their place in `notify`
    events: bool = False  # the hub makes them
    rdma: int = 0  # devices on each node
    gpu_type: str | None = None  # the value of a label on machines
    store_port: int | None = None  # torchrun's, if the job file names one


def make(spec: JobSpec) -> TargetPlan:
    """Return what `spec` asks of a cluster, and the port of its hub."""
    port = kubernetes.hub_port(spec.model_dump())
    keeps = any(not (volume.read_only or volume.empty_dir) for volume in spec.volumes)
    return TargetPlan(_settings(spec), hub_port=port, keeps_no_files=not keeps)


def problems(spec: JobSpec) -> list[Problem]:
    """Return everything that `--to kubernetes` cannot do."""
    job = spec.model_dump()
    found = [*(each for limit in _LIMITS for each in limit(spec)), *kubernetes.problems(job)]
    return [target.problem(spec, *each) for each in found]


def _settings(spec: JobSpec) -> KubernetesPlan:
    assert spec.image is not None
    return KubernetesPlan(
        image=spec.image,
        options=spec.kubernetes,
        volumes=spec.volumes,
        outputs=spec.outputs,
        secrets={name: ref.secret for name, ref in sorted(spec.secrets.items()) if ref.secret is not None},
        webhooks={
            index: each.webhook.secret
            for index, each in enumerate(spec.notify)
            if each.webhook is not None and each.webhook.secret is not None
        },
        events=any(each.events for each in spec.notify),
        rdma=spec.resources.rdma or 0,
        gpu_type=spec.resources.gpu_type,
        store_port=spec.rendezvous.port,
    )


FOLDER = "/ddplaunch"
SHM = "/dev/shm"  # noqa: S108 - a mount point
ACCOUNT = "service-account"
VOLUMES = ("ddplaunch", "files", "shm", ACCOUNT)
"""Names of the volumes that a pod has without asking."""

OUTPUTS = "ddplaunch/outputs"
"""Annotation of the pods, for the launcher: VOLUME/PATH of the folder in which the job gets its own
folder."""

QUEUED = ("queue_priority", "topology")
AFFINITY = ("nodeAffinity", "podAffinity", "podAntiAffinity")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWN_PREFIXES = ("app.kubernetes.io/", "batch.kubernetes.io/", "ddplaunch/", "jobset.sigs.k8s.io/")
OWN_KEYS = {
    "job-name": "Kubernetes reserves this name",
    "controller-uid": "Kubernetes reserves this name",
    "kueue.x-k8s.io/queue-name": "set kubernetes.queue",
    "kueue.x-k8s.io/priority-class": "set kubernetes.queue_priority",
    "kueue.x-k8s.io/podset-required-topology": "set kubernetes.topology",
    "kueue.x-k8s.io/podset-preferred-topology": "set kubernetes.topology",
    "k8s.v1.cni.cncf.io/networks": "set kubernetes.networks",
}

_Found = Iterator[tuple[str, str, str, str]]
"""Where, what was found, what is wanted, and a hint."""


def _image(spec: JobSpec) -> _Found:
    image = spec.image
    if image is None:
        yield "image", "no image", "the trainer's image", "pods run in it: python 3.9 or newer, and torch"
    elif wanted := wanted_for_image(image):
        yield (
            "image",
            f'"{image}"',
            wanted,
            "the repository must be in lower case, and the tag must come last",
        )


def _secrets(spec: JobSpec) -> _Found:
    for name, reference in spec.secrets.items():
        secret = reference.secret
        if secret is None:
            create = f"kubectl create secret generic {spec.name} --from-literal={name}=…"
            hint = f"{create}, and {name}: {{secret: {{name: {spec.name}, key: {name}}}}}"
            yield f"secrets.{name}", "env or file", "a Secret of the cluster for --to kubernetes", hint
        elif wanted := wanted_for_secret_key(secret.key):
            yield f"secrets.{name}.secret.key", "no such key", wanted, ""


def _recipients(spec: JobSpec) -> _Found:
    for index, each in enumerate(spec.notify):
        webhook, at = each.webhook, f"notify[{index}].webhook"
        if webhook is None:
            continue
        secret = webhook.secret
        if secret is None:
            create = f"kubectl create secret generic {spec.name} --from-literal=webhook=…"
            hint = f"{create}, and webhook: {{secret: {{name: {spec.name}, key: webhook}}}}"
            yield at, "env or file", "a Secret of the cluster for --to kubernetes", hint
        elif wanted := wanted_for_secret_key(secret.key):
            yield f"{at}.secret.key", "no such key", wanted, ""


def _devices(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    for key in ("gpu_resource", "rdma_resource"):
        value: str | None = getattr(options, key)
        if value and (form := wanted_for_resource(value)):
            yield f"kubernetes.{key}", f'"{value}"', form, ""


def _volumes(spec: JobSpec) -> _Found:
    for index, volume in enumerate(spec.volumes):
        at = f"volumes[{index}]"
        if volume.name in VOLUMES:
            yield (
                f"{at}.name",
                volume.name,
                "another name",
                "one of ddplaunch's own volumes has this name",
            )
        path = volume.mount_path.rstrip("/")
        if path == SHM:
            hint = "every pod has memory there; set its size with resources.shm"
            yield f"{at}.mount_path", path, "another folder", hint
        elif path == FOLDER or path.startswith(f"{FOLDER}/"):
            yield f"{at}.mount_path", path, "another folder", "ddplaunch's own files are there"
        elif path == "":
            yield f"{at}.mount_path", "/", "a folder below /", "it would hide the whole image"
        if ":" in path:
            yield f"{at}.mount_path", path, "a path without ':'", "Kubernetes takes none"
        if ".." in (volume.host_path or "").split("/"):
            yield f"{at}.host_path", "a path with '..'", "the folder's full path", "Kubernetes takes none"


def _keys(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    for section, own in (("labels", options.labels), ("annotations", options.annotations)):
        for key in own:
            if key in OWN_KEYS or key.startswith(OWN_PREFIXES):
                hint = OWN_KEYS.get(key, "")
                yield f"kubernetes.{section}", f"{key}, which is set already", "a key of your own", hint
    yield from _pairs("kubernetes.labels", options.labels)
    yield from _pairs("kubernetes.node_selector", options.node_selector)
    for key in options.annotations:
        if wanted := wanted_for_key(key):
            yield "kubernetes.annotations", f'the key "{key}"', wanted, ""


def _pairs(path: str, mapping: Mapping[str, str]) -> _Found:
    for key, value in mapping.items():
        if wanted := wanted_for_key(key):
            yield path, f'the key "{key}"', wanted, ""
        if wanted := wanted_for_label_value(value):
            yield f"{path}.{key}", f'"{value}"', wanted, ""


def _scheduling(spec: JobSpec) -> _Found:
    options = spec.kubernetes
    for index, toleration in enumerate(options.tolerations):
        at = f"kubernetes.tolerations[{index}]"
        key, value = toleration.key, toleration.value
        if key and (wanted := wanted_for_key(key)):
            yield f"{at}.key", f'"{key}"', wanted, ""
        if wanted := wanted_for_label_value(value or ""):
            yield f"{at}.value", f'"{value}"', wanted, ""
    labels = {"gpu_type_label": options.gpu_type_label}
    if options.topology_spread:
        labels = {"topology_spread.key": options.topology_spread.key, **labels}
    labels |= {f"topology.{name}": value for name, value in _topology(options).items()}
    for at, label in labels.items():
        if label and (wanted := wanted_for_key(label)):
            yield f"kubernetes.{at}", f'"{label}"', wanted, ""
    for index, network in enumerate(options.networks):
        if wanted := wanted_for_network(network):
            yield f"kubernetes.networks[{index}]", f'"{network}"', wanted, ""


def _kueue(spec: JobSpec) -> _Found:
    """Refuse keys that only Kueue reads, if no queue is named."""
    options = spec.kubernetes
    if options.topology is not None and len(_topology(options)) != 1:
        yield "kubernetes.topology", "both or none", "one of required, preferred", ""
    for key in QUEUED:
        if getattr(options, key) is not None and not options.queue:
            hint = "only Kueue uses it, and only for jobs in its queues"
            yield f"kubernetes.{key}", "no queue", "kubernetes.queue beside it", hint


def _topology(options: Kubernetes) -> dict[str, str]:
    """Return the labels that are given, those for `required` and those for `preferred`."""
    given = options.topology.model_dump() if options.topology else {}
    return {how: label for how, label in given.items() if label}


def _gpu_type(spec: JobSpec) -> _Found:
    label = spec.kubernetes.gpu_type_label
    if spec.resources.gpu_type and label in spec.kubernetes.node_selector:
        hint = "both choose the GPU type"
        yield "kubernetes.node_selector", label, "resources.gpu_type alone", hint


def _affinity(spec: JobSpec) -> _Found:
    """Refuse what the API server would refuse, and terms to which ours could not be added."""
    for key, value in spec.kubernetes.affinity.items():
        at = f"kubernetes.affinity.{key}"
        if key not in AFFINITY:
            yield at, "an unknown key", "one of " + ", ".join(AFFINITY), ""
        elif not isinstance(value, dict):
            yield at, "no mapping", "a mapping", ""
        elif key != "nodeAffinity" and not isinstance(value.get(REQUIRED, []), list):
            yield f"{at}.{REQUIRED}", "no list", "a list of terms", ""


def _restricted(spec: JobSpec) -> _Found:
    """Yield what the `restricted` Pod Security Standard forbids, because no pod would ever be made."""
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


_LIMITS: tuple[Callable[[JobSpec], _Found], ...] = (
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


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

KEY = rf"({_DOMAIN}/)?{_QUALIFIED}"
LABEL_VALUE = rf"({_QUALIFIED})?"
RESOURCE = rf"{_DOMAIN}/{_QUALIFIED}"
KUBERNETES_OWN = r"kubernetes\.io/.*"
SECRET_KEY = r"[-._A-Za-z0-9]{1,253}"
IMAGE = (
    rf"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][-.A-Za-z0-9_]{{0,127}})?(@[a-z0-9+._-]+:[0-9a-f]{{32,}})?"
)
NETWORK = rf"({_DOMAIN}/)?{_DOMAIN}(@[^/@\s]{{1,15}})?"


def wanted_for_key(text: str) -> str | None:
    """Return what is wanted if `text` is no key of a label, an annotation or a taint; otherwise None."""
    good = _fits(KEY, text) and _is_short(text)
    return None if good else "a key such as example.com/team: letters, digits, '-', '_', '.', at most 63"


def wanted_for_label_value(text: str) -> str | None:
    """Return what is wanted if `text` is no value of a label or a taint; otherwise None."""
    good = _fits(LABEL_VALUE, text)
    return None if good else "at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends"


def wanted_for_resource(text: str) -> str | None:
    """Return what is wanted if `text` names no resource of a device plugin; otherwise None."""
    good = _fits(RESOURCE, text) and _is_short(text) and not _fits(KUBERNETES_OWN, text)
    return None if good else "a device plugin's resource, such as nvidia.com/gpu"


def wanted_for_secret_key(text: str) -> str | None:
    """Return what is wanted if `text` is no key inside a Secret; otherwise None."""
    return None if _fits(SECRET_KEY, text) else "at most 253 letters, digits, '-', '_', '.'"


def wanted_for_image(text: str) -> str | None:
    """Return what is wanted if registries cannot read `text`: otherwise that shows only when a node
    pulls it.
    """
    return None if _fits(IMAGE, text) else "an image such as registry.example.com/team/trainer:1.0"


def wanted_for_network(text: str) -> str | None:
    """Return what is wanted if Multus cannot read `text` as a NetworkAttachmentDefinition; otherwise None."""
    return None if _fits(NETWORK, text) and _is_short(text) else "NAME, NAMESPACE/NAME or NAME@INTERFACE"


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _is_short(text: str) -> bool:
    """Whether each domain in `text` is short enough for Kubernetes."""
    return max(map(len, re.split("[/@]", text))) <= 253
