"""One manifest: the job's files, its names, and an Indexed Job (or a JobSet) of equal pods.

It needs no operator and no API access from the pods, and says the same for 2 nodes and for 2000. `pod` has
the pods, `overlay` what the job file puts over them, `chart_values` the values of the Helm chart.
"""

from __future__ import annotations

import base64
import itertools
import math
from dataclasses import replace
from typing import Any

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.agent.plan import GATE_LEAVES, Exit, Files
from ddplaunch.errors import SourceTooLargeError
from ddplaunch.plan.kubernetes import KubernetesPlan
from ddplaunch.plan.plan import Plan
from ddplaunch.render import Rendered, RenderedFile
from ddplaunch.render.archive import agent_archive, source_archive
from ddplaunch.render.kubernetes import overlay, pod, text
from ddplaunch.render.kubernetes.pod import (
    GATE,
    PYTHON,
    TRAINER,
    job_annotations,
    job_labels,
    plan_text,
    pod_selector,
)

_ROOM = 50
"""Characters in a job's name, as in a job file. Kubernetes makes longer names from it."""
_KEY = (
    "the job's key is in no file: `submit` makes one, in the Secret {job}-key. By hand, before the job is "
    "applied: `head -c 32 /dev/urandom | base64 | kubectl create secret generic {job}-key{namespace} "
    "--from-file=key=/dev/stdin`. Without it, the key is the Job's uid, which every user who may list pods "
    "can read."
)
_ROLE = (
    "its Events need a permission; once per namespace: `kubectl create role events{namespace} --verb=create "
    "--resource=events.events.k8s.io`, and `kubectl create rolebinding events{namespace} --role=events "
    "--serviceaccount={account}`"
)


def render(plan: Plan, *, gate_only: bool = False) -> Rendered:
    """Return the manifest. Same plan, same bytes.

    The Service comes before the pods whose names it publishes.
    """
    options = plan.settings(KubernetesPlan).options
    workload = jobset if options.jobset else job
    template = overlay.overlaid(pod.template(plan, gate_only=gate_only), options.pod_template, plan.job.job)
    made = [
        config_map(plan),
        service(plan),
        *network_policies(plan),
        workload(plan, template),
    ]
    name = f"{plan.job.job}.yaml"
    content = text.documents(made).encode()
    # kubectl's own way would keep a second copy of each object in the object, and archives leave no room for
    # that.
    command = ("kubectl", "apply", "--server-side", "--filename", name)
    namespace = f" --namespace {options.namespace}" if options.namespace else ""
    by_hand = _KEY.format(job=plan.job.job, namespace=namespace)
    if plan.settings(KubernetesPlan).events:
        account = f"{options.namespace or 'NAMESPACE'}:{options.service_account or 'default'}"
        by_hand += f"\nnote: {_ROLE.format(namespace=namespace, account=account)}"
    room = kubernetes.name_room(plan.job.nodes) if options.jobset else _ROOM

    def counted(number: int) -> Rendered:
        again = render(plan.counted(number, room), gate_only=gate_only)
        return replace(again, sweep=plan.sweep)

    files = {name: RenderedFile(content)}
    return Rendered(plan.target, plan.job.job, files, command, by_hand, counted=counted)


_NODES = "node"
"""The one replicated job of a JobSet; its pods are NAME-node-0-INDEX."""

_CONFIG_MAP = 1 << 20
"""Bytes of all its files together."""

_LAST_PORT = 65535

_FINAL = ["PodFailurePolicy", "DeadlineExceeded"]
"""Reasons for the failure of a Job after which a JobSet does not start it again."""

_LEAVES = {"containerName": GATE, "operator": "In", "values": [GATE_LEAVES]}
_DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]  # before 1.35 the status must be given


def config_map(plan: Plan) -> dict[str, Any]:
    """The files that travel with the job. Nobody can change them under a job that runs."""
    archives = {Files.AGENT: agent_archive()}
    if plan.source:
        archives[Files.SOURCE] = source_archive(plan.source)
    text = plan_text(plan)
    size = sum(map(len, archives.values())) + len(text.encode())
    if size > _CONFIG_MAP:
        raise SourceTooLargeError(
            f"the files of {plan.job.job} are {size:,} bytes, and a ConfigMap can contain at most "
            f"{_CONFIG_MAP:,}",
            hint="put code into the image or on a volume, and long values of `env` into files",
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(plan),
        "immutable": True,
        "data": {Files.PLAN: text},
        "binaryData": {name: base64.b64encode(data).decode() for name, data in archives.items()},
    }


def service(plan: Plan) -> dict[str, Any]:
    """The pods' names, from the moment they have addresses: the gate runs before any of them is ready."""
    known = {"hub": plan.job.gate.port, "store": plan.settings(KubernetesPlan).store_port}
    spec: dict[str, Any] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "ipFamilyPolicy": "SingleStack",
        "selector": pod_selector(plan),
    }
    if ports := [{"name": name, "port": port} for name, port in known.items() if port]:
        spec["ports"] = ports
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(plan), "spec": spec}


def network_policies(plan: Plan) -> list[dict[str, Any]]:
    """Return at most one policy on who reaches the job's pods; none for hostNetwork, where none is heeded."""
    options = plan.settings(KubernetesPlan).options
    if options.network_policy == "none" or options.host_network:
        return []
    rules = _closed_ports if options.network_policy == "ports" else _closed_pods
    pods = {"podSelector": {"matchLabels": pod_selector(plan)}}
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _metadata(plan),
            "spec": {**pods, **rules(plan, pods)},
        }
    ]


def _closed_ports(plan: Plan, pods: dict[str, Any]) -> dict[str, Any]:
    """The job's own ports for its own pods; all others stay as open as they are without a policy."""
    closed = sorted({port for port in (plan.job.gate.port, plan.settings(KubernetesPlan).store_port) if port})
    edges = [0, *closed, _LAST_PORT + 1]
    between = [(left + 1, right - 1) for left, right in itertools.pairwise(edges) if right - left > 1]
    ranges = [{"protocol": "TCP", "port": first, "endPort": last} for first, last in between]
    ranges.append({"protocol": "UDP", "port": 1, "endPort": _LAST_PORT})
    return {"policyTypes": ["Ingress"], "ingress": [{"from": [pods]}, {"ports": ranges}]}


def _closed_pods(_: Plan, pods: dict[str, Any]) -> dict[str, Any]:
    """Return all ports between the job's pods, for NCCL and Gloo take any; and names."""
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [pods]}],
        "egress": [{"to": [pods]}, {"ports": names}],
    }


def job(plan: Plan, template: dict[str, Any]) -> dict[str, Any]:
    """Return the Job: one pod per node, each with its index, and none of them ever replaced alone."""
    spec = {**_waiting_and_going(plan), **_job_spec(plan, template)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _queued(plan), "spec": spec}


def jobset(plan: Plan, template: dict[str, Any]) -> dict[str, Any]:
    """A Job that is started again as a whole when a node or the network was at fault."""
    spec = {
        **_waiting_and_going(plan),
        # The Service is ours: the pods need it before they are ready.
        "network": {"enableDNSHostnames": False},
        "failurePolicy": {
            "maxRestarts": plan.job.retries,
            # No pod of a new attempt before the last of the old one is gone.
            "restartStrategy": "BlockingRecreate",
            "rules": [
                {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"]}
            ],
        },
        "replicatedJobs": [
            {
                "name": _NODES,
                "replicas": 1,
                "template": {
                    "metadata": {"labels": job_labels(plan), "annotations": job_annotations(plan)},
                    "spec": _job_spec(plan, template),
                },
            }
        ],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _queued(plan),
        "spec": spec,
    }


def _metadata(plan: Plan) -> dict[str, Any]:
    namespace = plan.settings(KubernetesPlan).options.namespace
    return {
        "name": plan.job.job,
        **({"namespace": namespace} if namespace else {}),
        "labels": job_labels(plan),
        "annotations": job_annotations(plan),
    }


def _queued(plan: Plan) -> dict[str, Any]:
    metadata = _metadata(plan)
    options = plan.settings(KubernetesPlan).options
    given = {"queue-name": options.queue, "priority-class": options.queue_priority}
    queued = {f"kueue.x-k8s.io/{name}": value for name, value in given.items() if value}
    return {**metadata, "labels": {**metadata["labels"], **queued}}


def _waiting_and_going(plan: Plan) -> dict[str, Any]:
    """Return what Job and JobSet say alike: whether a queue lets it in, and when it goes."""
    options = plan.settings(KubernetesPlan).options
    suspend = {"suspend": True} if options.queue else {}
    return suspend if options.ttl is None else {**suspend, "ttlSecondsAfterFinished": math.ceil(options.ttl)}


def _job_spec(plan: Plan, template: dict[str, Any]) -> dict[str, Any]:
    options = plan.settings(KubernetesPlan).options
    deadline = options.active_deadline
    return {
        "completionMode": "Indexed",
        "completions": plan.job.nodes,
        "parallelism": plan.job.nodes,
        "backoffLimit": 0,
        **({} if deadline is None else {"activeDeadlineSeconds": math.ceil(deadline)}),
        "podReplacementPolicy": "Failed",
        # Its pod succeeds when those of all nodes that have started have ended; the others may never come.
        **({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}} if plan.job.min_nodes else {}),
        "podFailurePolicy": {
            "rules": [
                *([{"action": "Ignore", "onExitCodes": _LEAVES}] if plan.job.min_nodes else []),
                *_failures(_passed(plan), may_return=options.jobset),
            ]
        },
        "template": template,
    }


def _passed(plan: Plan) -> list[int]:
    """Return the exit codes of pods that do not fail the Job for good.

    Where one pod is evicted, or a queue preempts the job, the other pods get SIGTERM as well, and may fail
    first.
    """
    options = plan.settings(KubernetesPlan).options
    stopped = bool(options.queue) or (options.jobset and plan.job.retries > 0)
    retried = plan.job.retried if options.jobset else []
    return [Exit.OK, *retried, *([Exit.STOPPED] if stopped else [])]


def _failures(passed: list[int], *, may_return: bool) -> list[dict[str, Any]]:
    """Any failed pod fails the Job. `may_return`: a JobSet starts it again after some of the `passed` codes.

    What is only counted fails the Job by its backoffLimit, a reason on which the JobSet starts it again.
    """
    counted = "Count" if may_return else "FailJob"
    rules: list[dict[str, Any]] = [{"action": counted, "onPodConditions": _DISRUPTED}]
    for container in (PYTHON, GATE, TRAINER):
        codes = {"containerName": container, "operator": "NotIn", "values": passed}
        rules.append({"action": "FailJob", "onExitCodes": codes})
    return rules
