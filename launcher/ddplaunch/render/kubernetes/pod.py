"""The pod, which is the same for every node of a job: hub, gate, then the trainer under its supervisor.

Before them the agent is asked for its version, to see whether it can run in this image at all. A sidecar that
cannot be started is tried again for ever; an init container that cannot be started fails the pod, and with it
the Job. The hub is a native sidecar, so that it outlives both others, whatever kills them; on nodes other
than 0 it decides nothing. The gate is a plain init container with the trainer's image and devices: it ends,
and if it must, it ends the pod. Probes would be of no use: a pod's name resolves before the pod is ready, and
the watchdog takes care of a trainer that does not move.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from decimal import Decimal
from typing import Any

from ddplaunch import __version__
from ddplaunch.agent.job_file.units import format_quantity
from ddplaunch.agent.plan import Env, Files, codec
from ddplaunch.plan.kubernetes import ACCOUNT, FOLDER, OUTPUTS, REQUIRED, SHM, KubernetesPlan
from ddplaunch.plan.plan import Plan
from ddplaunch.spec.models import Volume
from ddplaunch.spec.targets import Toleration


def job_labels(plan: Plan) -> dict[str, str]:
    """Return the labels of every object. The user's own override ours."""
    name = plan.job.job
    return {
        "app.kubernetes.io/name": plan.family or name,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "training",
        "app.kubernetes.io/part-of": "ddplaunch",
        "app.kubernetes.io/managed-by": "ddplaunch",
        "app.kubernetes.io/version": re.sub(r"[^-.\w]", "_", __version__, flags=re.ASCII),
        **plan.settings(KubernetesPlan).options.labels,
    }


def job_annotations(plan: Plan) -> dict[str, str]:
    """Return the annotations of every object: what made it, and from which plan."""
    digest = hashlib.sha256(plan_text(plan).encode()).hexdigest()
    sweep = {"ddplaunch/sweep": json.dumps(plan.sweep, ensure_ascii=False)} if plan.sweep else {}
    return {"ddplaunch/version": __version__, "ddplaunch/spec": digest, **sweep}


def pod_selector(plan: Plan) -> dict[str, str]:
    """Return labels that this job's pods have and no others. The Job's controller sets them."""
    if plan.settings(KubernetesPlan).options.jobset:
        return {"jobset.sigs.k8s.io/jobset-name": plan.job.job}
    return {"batch.kubernetes.io/job-name": plan.job.job}


def plan_text(plan: Plan) -> str:
    """Return `plan.json`. Its digest is in every object, so the same plan must always give the same bytes."""
    text = json.dumps(_numbers(codec.dump(plan.job)), indent=2, sort_keys=True, ensure_ascii=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _numbers(data: Any) -> Any:
    """Return whole numbers without the `.0` that only Python writes."""
    if isinstance(data, dict):
        return {key: _numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


GRACE = 90
"""Seconds from SIGTERM to SIGKILL: the supervisor takes evidence, then ends torchrun, and then the hub
speaks."""

PYTHON, HUB, GATE, TRAINER = "python", "hub", "gate", "trainer"

_TERMINATION = "/dev/termination-log"
_FOLDER = ("--folder", FOLDER)
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_RESOLVER = {"name": "RES_OPTIONS", "value": "timeout:1 attempts:1"}
"""Makes the C library give up a lookup after 1 s: a lost machine may have had one of CoreDNS's two pods.

glibc sends all attempts of a lookup from one port, and kube-proxy sends all traffic of one port to one pod.
So by default a lookup would ask the lost pod for 10 s, while another lookup may reach the other pod.
"""
_SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


def template(plan: Plan, *, gate_only: bool = False) -> dict[str, Any]:
    """Return a PodTemplateSpec; with `gate_only`, one whose trainer does nothing."""
    options = plan.settings(KubernetesPlan).options
    asked = {
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "imagePullSecrets": [{"name": name} for name in options.image_pull_secrets],
        "nodeSelector": _machines(plan),
        "tolerations": [_toleration(each) for each in options.tolerations],
        **_network(plan),
        "affinity": _affinity(plan),
    }
    spec = {
        "subdomain": plan.job.job,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE + warning(plan),
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        **{key: value for key, value in asked.items() if value},
        "topologySpreadConstraints": _spread(plan),
        "securityContext": _pod_security(plan.settings(KubernetesPlan)),
        "initContainers": [_python(plan), _hub(plan, gate_only=gate_only), _gate(plan)],
        "containers": [_trainer(plan, gate_only=gate_only)],
        "volumes": _volumes(plan),
    }
    pod_labels = {**job_labels(plan), "sidecar.istio.io/inject": "false"}
    return {"metadata": {"labels": pod_labels, "annotations": _pod_annotations(plan)}, "spec": spec}


def warning(plan: Plan) -> int:
    """Return how many seconds the ranks have between the job file's signal and SIGTERM."""
    return math.ceil(plan.job.signal.before) if plan.job.signal is not None else 0


def _pod_annotations(plan: Plan) -> dict[str, str]:
    options = plan.settings(KubernetesPlan).options
    found = {
        **job_annotations(plan),
        "kubectl.kubernetes.io/default-container": TRAINER,
        "sidecar.istio.io/inject": "false",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    if outputs := plan.settings(KubernetesPlan).outputs:
        found[OUTPUTS] = f"{outputs.volume}/{(outputs.path or '').strip('/')}"
    if options.networks:
        found["k8s.v1.cni.cncf.io/networks"] = ", ".join(options.networks)
    near = options.topology.model_dump() if options.topology else {}
    found |= {f"kueue.x-k8s.io/podset-{how}-topology": label for how, label in near.items() if label}
    return {**found, **options.annotations}


def _network(plan: Plan) -> dict[str, Any]:
    """Return hostNetwork and what it requires."""
    own = not plan.settings(KubernetesPlan).options.host_network
    return {} if own else {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}


def _machines(plan: Plan) -> dict[str, str]:
    """Return the labels that a machine must have."""
    kubernetes = plan.settings(KubernetesPlan)
    kind = {kubernetes.options.gpu_type_label: kubernetes.gpu_type} if kubernetes.gpu_type else {}
    return {**kubernetes.options.node_selector, **kind}


def _affinity(plan: Plan) -> dict[str, Any]:
    """Return the user's affinity, with our term if two nodes of the job must not share a machine.

    On a machine's own network they would both use the same ports.
    """
    options = plan.settings(KubernetesPlan).options
    if not (options.host_network or options.one_per_machine):
        return options.affinity
    apart = {"labelSelector": {"matchLabels": pod_selector(plan)}, "topologyKey": "kubernetes.io/hostname"}
    others = options.affinity.get("podAntiAffinity", {})
    terms = [apart, *others.get(REQUIRED, [])]
    return {**options.affinity, "podAntiAffinity": {**others, REQUIRED: terms}}


def _spread(plan: Plan) -> list[dict[str, Any]]:
    """Return the affinity that puts each of the job's nodes on a different machine, if possible."""
    wanted = [("kubernetes.io/hostname", 1, "ScheduleAnyway")]
    if given := plan.settings(KubernetesPlan).options.topology_spread:
        named = (given.key, given.max_skew, given.when_unsatisfiable)
        wanted = [*(each for each in wanted if each[0] != given.key), named]
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": pod_selector(plan)},
        }
        for key, skew, otherwise in wanted
    ]


def _toleration(given: Toleration) -> dict[str, Any]:
    found = {
        "key": given.key,
        "operator": given.operator,
        "value": given.value,
        "effect": given.effect,
        "tolerationSeconds": given.toleration_seconds,
    }
    return {key: value for key, value in found.items() if value is not None}


def _pod_security(kubernetes: KubernetesPlan) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if kubernetes.options.restricted:
        found["runAsNonRoot"] = True
    user = kubernetes.options.run_as_user
    if user is not None:
        found |= {"runAsUser": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}
    return {**found, "seccompProfile": {"type": "RuntimeDefault"}}


def _security(*capabilities: str) -> dict[str, Any]:
    added = {"add": list(capabilities)} if capabilities else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **added}}


def _python(plan: Plan) -> dict[str, Any]:
    return {
        **_container(plan, PYTHON, "--version"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_small(plan),
    }


def _hub(plan: Plan, *, gate_only: bool) -> dict[str, Any]:
    words = [*_FOLDER, "--gate-only"] if gate_only else _FOLDER
    webhooks = [  # these are optional: a pod starts without them
        {
            "name": f"{Env.WEBHOOK}{index}",
            "valueFrom": {"secretKeyRef": {"name": each.name, "key": each.key, "optional": True}},
        }
        for index, each in plan.settings(KubernetesPlan).webhooks.items()
    ]
    small = _small(plan)
    if plan.settings(KubernetesPlan).events:
        small["volumeMounts"].append({"name": ACCOUNT, "mountPath": _TOKEN, "readOnly": True})
    return {
        **_container(plan, HUB, "hub", *words),
        "restartPolicy": "Always",
        "env": [*_environment(plan), *webhooks, *([_RESOLVER] if webhooks else [])],
        **small,
    }


def _small(plan: Plan) -> dict[str, Any]:
    """Return what the agent needs for itself. It reads the volumes, because the job's Python may be on
    one.
    """
    mounts = [{**_mount(volume), "readOnly": True} for volume in plan.settings(KubernetesPlan).volumes]
    return {
        "resources": _SMALL,
        "securityContext": {**_security(), "readOnlyRootFilesystem": True},
        "volumeMounts": [*_own_files(plan), *mounts],
    }


def _gate(plan: Plan) -> dict[str, Any]:
    """Return the gate's container. It asks for the trainer's devices, which each container is given anew."""
    return {
        **_container(plan, GATE, "gate", *_FOLDER),
        "env": _environment(plan),
        **_resources(plan),
        "securityContext": _security(*_rdma_capabilities(plan)),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*_own_files(plan), *_mounts(plan)],
    }


def _trainer(plan: Plan, *, gate_only: bool) -> dict[str, Any]:
    words = _container(plan, TRAINER, "run", *_FOLDER)
    if gate_only:
        words["command"] = [_literally(plan.job.python), "-I", "-S", "-c", "pass"]
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": each.name, "key": each.key}}}
        for name, each in plan.settings(KubernetesPlan).secrets.items()
    ]
    ptrace = ["SYS_PTRACE"] if plan.job.watchdog.privileges == "ptrace" else []
    return {
        **words,
        "env": [*_environment(plan), *secrets],
        **_resources(plan),
        "securityContext": _security(*_rdma_capabilities(plan), *ptrace),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*_own_files(plan), *_mounts(plan)],
    }


def _container(plan: Plan, name: str, *words: str) -> dict[str, Any]:
    kubernetes = plan.settings(KubernetesPlan)
    policy = kubernetes.options.image_pull_policy
    return {
        "name": name,
        "image": kubernetes.image,
        **({"imagePullPolicy": policy} if policy else {}),
        "command": [_literally(plan.job.python), "-I", "-S", f"{FOLDER}/{Files.AGENT}", *words],
    }


def _literally(word: str) -> str:
    """Return the word so that Kubernetes leaves it alone: it replaces `$(NAME)` in commands."""
    return word.replace("$(", "$$(")


def _environment(plan: Plan) -> list[dict[str, Any]]:
    """Return what differs between nodes and attempts, taken from the labels of their pods: no node is named
    here.
    """
    options = plan.settings(KubernetesPlan).options
    name = plan.job.job
    domain = options.cluster_domain or "{domain}"
    node = f"{name}-node-0" if options.jobset else name
    full = f"{node}-{{node}}.{name}.$({Env.NAMESPACE}).svc.{domain}"
    attempt = _field(_label("jobset.sigs.k8s.io/restart-attempt")) if options.jobset else {"value": "0"}
    kept = [{"name": Env.SUBMISSION, **_submission(plan)}] if plan.job.outputs else []
    return [
        {"name": Env.NODE, **_field(_label("batch.kubernetes.io/job-completion-index"))},
        {"name": Env.KEY, "valueFrom": {"secretKeyRef": _key(name)}},
        {"name": Env.UID, **_field(_label("batch.kubernetes.io/controller-uid"))},
        {"name": Env.ATTEMPT, **attempt},
        {"name": Env.NAMESPACE, **_field("metadata.namespace")},
        {"name": Env.NAMES, "value": full},
        {"name": Env.HUB, "value": f"{full.format(node=0, domain='{domain}')}:{plan.job.gate.port}"},
        {"name": Env.MACHINE, **_field("spec.nodeName")},
        {"name": Env.TERMINATION, "value": _TERMINATION},
        *kept,
    ]


def _submission(plan: Plan) -> dict[str, Any]:
    """Return what tells this job from all others: each Job of a JobSet has its own uid."""
    jobset = plan.settings(KubernetesPlan).options.jobset
    return _field(_label("jobset.sigs.k8s.io/jobset-uid" if jobset else "batch.kubernetes.io/controller-uid"))


def _key(job: str) -> dict[str, Any]:
    """Return the mount of a Secret that is in no rendered file: `submit` makes it. Without it, the uid is the
    key.
    """
    return {"name": f"{job}-key", "key": "key", "optional": True}


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _label(key: str) -> str:
    return f"metadata.labels['{key}']"


def _resources(plan: Plan) -> dict[str, Any]:
    """Return a limit on memory, which must not be exceeded, and none on CPU, which would only slow the ranks
    down.
    """
    kubernetes = plan.settings(KubernetesPlan)
    asked, options = plan.job.resources, kubernetes.options
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if asked.cpus is not None:
        thousandths = math.ceil(Decimal(str(asked.cpus)) * 1000)  # 2.007 * 1000 is a little more than 2007
        requests["cpu"] = f"{thousandths}m" if thousandths % 1000 else f"{thousandths // 1000}"
    if asked.memory is not None:
        requests["memory"] = limits["memory"] = format_quantity(asked.memory)
    devices = {options.gpu_resource: asked.gpus, options.rdma_resource: kubernetes.rdma}
    for name, count in devices.items():
        if name and count:
            requests[name] = limits[name] = str(count)
    found = {"requests": requests, "limits": limits}
    resources = {key: value for key, value in found.items() if value}
    return {"resources": resources} if resources else {}


def _rdma_capabilities(plan: Plan) -> list[str]:
    """Return the capabilities without which containers can pin almost no memory; RDMA pins it."""
    return ["IPC_LOCK"] if plan.settings(KubernetesPlan).rdma else []


def _own_files(plan: Plan) -> list[dict[str, Any]]:
    names = [Files.AGENT, Files.PLAN, *([Files.SOURCE] if plan.source else [])]
    files = [
        {"name": "files", "mountPath": f"{FOLDER}/{name}", "subPath": name, "readOnly": True}
        for name in names
    ]
    return [{"name": "ddplaunch", "mountPath": FOLDER}, *files]


def _mounts(plan: Plan) -> list[dict[str, Any]]:
    shm = {"name": "shm", "mountPath": SHM}
    return [shm, *(_mount(volume) for volume in plan.settings(KubernetesPlan).volumes)]


def _mount(volume: Volume) -> dict[str, Any]:
    found: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
    return {**found, "readOnly": True} if volume.read_only else found


def _volumes(plan: Plan) -> list[dict[str, Any]]:
    """Return the volumes. /dev/shm without a size may grow up to the pod's memory; a runtime alone gives 64
    MiB.
    """
    size = plan.job.resources.shm
    shm = {"medium": "Memory", **({"sizeLimit": format_quantity(size)} if size else {})}
    return [
        {"name": "ddplaunch", "emptyDir": {}},
        {"name": "files", "configMap": {"name": plan.job.job}},
        {"name": "shm", "emptyDir": shm},
        *([_account()] if plan.settings(KubernetesPlan).events else []),
        *(_volume(volume) for volume in plan.settings(KubernetesPlan).volumes),
    ]


def _account() -> dict[str, Any]:
    """Return the volume with the token of the pod's service account, which only the hub gets."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}], "optional": True}
    return {"name": ACCOUNT, "projected": {"sources": [token, {"configMap": root}]}}


def _volume(volume: Volume) -> dict[str, Any]:
    if volume.claim:
        claim: dict[str, Any] = {"claimName": volume.claim}
        if volume.read_only:
            claim["readOnly"] = True
        return {"name": volume.name, "persistentVolumeClaim": claim}
    if volume.host_path:
        return {"name": volume.name, "hostPath": {"path": volume.host_path}}
    return {"name": volume.name, "emptyDir": {}}
