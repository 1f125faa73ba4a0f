"""A JobSet of one Indexed Job: its controller names the pods, and counts its restarts. Pure."""

from __future__ import annotations

from ddplaunch.agent.contract import Env
from ddplaunch.inject import kinds
from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods
from ddplaunch.inject.settings import Settings

_ATTEMPT = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"


def pods(document: Value, settings: Settings) -> list[Pods]:
    """Return the pods of the JobSet. Raises UsageError."""
    spec = document.need("spec", wanted="a JobSet")
    jobs = spec.need("replicatedJobs", wanted="one replicated job")
    only = jobs.items()[0]
    if len(jobs.items()) > 1:
        names = ", ".join(item.name() for item in jobs.items())
        raise jobs.refused(names, "one replicated job, whose pods are the nodes")
    replicas = only.get("replicas")
    if replicas and replicas.number() != 1:
        raise replicas.refused(replicas.text(), "1: the nodes are pods of one Job")
    job = only.need("template", "spec", wanted="a Job")
    mode = job.get("completionMode")
    if mode and mode.text() != "Indexed":
        raise mode.refused(mode.text(), kinds.INDEXED)
    nodes = kinds.count(job)
    pod = job.need("template", "spec", wanted="a pod")
    by_name = spec.get("network", "enableDNSHostnames")
    unnamed = (by_name is not None and not kinds.is_true(by_name)) or kinds.is_true(pod.get("hostNetwork"))
    if nodes > 1 and unnamed and not kinds.has_master(pod, settings.container):
        raise pod.refused("nothing that names node 0", "names of the pods by JobSet, or MASTER_ADDR")
    attempt = {"name": Env.ATTEMPT, "valueFrom": {"fieldRef": {"fieldPath": _ATTEMPT}}}
    return [Pods(pod, [f"--nodes={nodes}"], env=[attempt])]
