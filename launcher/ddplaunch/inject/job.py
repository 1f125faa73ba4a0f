"""An Indexed Job of Kubernetes: rank by the pod's index, master by the headless Service. Pure."""

from __future__ import annotations

from ddplaunch.inject import kinds
from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods
from ddplaunch.inject.settings import Settings


def pods(document: Value, settings: Settings) -> list[Pods]:
    """Return the pods of the Job. Raises UsageError."""
    spec = document.need("spec", wanted="a Job")
    mode = spec.need("completionMode", wanted=f"completionMode: {kinds.INDEXED}")
    if mode.text() != "Indexed":
        raise mode.refused(mode.text(), kinds.INDEXED)
    nodes = kinds.count(spec)
    pod = spec.need("template", "spec", wanted="a pod")
    named = pod.get("subdomain") and not kinds.is_true(pod.get("hostNetwork"))
    if nodes > 1 and not named and not kinds.has_master(pod, settings.container):
        raise pod.refused(
            "nothing that names node 0",
            "`subdomain`, with a headless Service of that name, or MASTER_ADDR",
            "docs/how-to/run-on-many-nodes.md has a Job with its Service",
        )
    return [Pods(pod, [f"--nodes={nodes}"])]
