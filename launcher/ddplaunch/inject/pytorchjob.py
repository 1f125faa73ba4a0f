"""A PyTorchJob of training-operator v1: its controller sets RANK and MASTER_ADDR in every pod. Pure.

WORLD_SIZE counts processes there, not pods; so the number of nodes is that of the manifest.
"""

from __future__ import annotations

from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import Pods
from ddplaunch.inject.settings import Settings

_CONTAINER = "pytorch"
_MASTER, _WORKER = "Master", "Worker"


def pods(document: Value, settings: Settings) -> list[Pods]:  # noqa: ARG001 - the operator names the container
    """Return the pods of master and workers. Raises UsageError."""
    spec = document.need("spec", wanted="a PyTorchJob")
    elastic = spec.get("elasticPolicy")
    if elastic:
        raise elastic.refused("an elastic job", "a job of a fixed number of nodes")
    replicas = spec.need("pytorchReplicaSpecs", wanted="Master and Worker")
    parts = {str(key.value): value for key, value in replicas.entries()}
    if _MASTER not in parts or parts.keys() - {_MASTER, _WORKER}:
        raise replicas.refused(", ".join(parts), f"{_MASTER} and {_WORKER}", "the master is node 0")
    counts = {name: each.number() if (each := part.get("replicas")) else 1 for name, part in parts.items()}
    if counts[_MASTER] != 1:
        raise parts[_MASTER].refused(f"{counts[_MASTER]} replicas", "one")
    options = [f"--nodes={sum(counts.values())}", "--node-rank=$(RANK)"]
    specs = [part.need("template", "spec", wanted="a pod") for part in parts.values()]
    return [Pods(spec, options, _CONTAINER) for spec in specs]
