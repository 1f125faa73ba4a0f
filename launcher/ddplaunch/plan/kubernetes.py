"""Plans what a job file asks of Kubernetes, beside what every node is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, SecretKey, Volume
    from ddplaunch.spec.targets import Kubernetes


HUB_PORT = 29400
"""Pods have a network of their own, so the port can be the same in all of them, and known beforehand."""


@dataclass(frozen=True)
class KubernetesPlan:
    """`options` are the job file's own; the rest is what other sections say and only Kubernetes reads."""

    image: str
    options: Kubernetes
    volumes: tuple[Volume, ...] = ()
    secrets: Mapping[str, SecretKey] = field(default_factory=dict)
    rdma: int = 0  # devices on every node
    store_port: int | None = None  # torchrun's, where the job file names one


def make(spec: JobSpec) -> TargetPlan:
    """Return what `spec` asks of a cluster, and the port of its hub."""
    return TargetPlan(_settings(spec), hub_port=_hub_port(spec))


def _settings(spec: JobSpec) -> KubernetesPlan:
    assert spec.image is not None
    return KubernetesPlan(
        image=spec.image,
        options=spec.kubernetes,
        volumes=spec.volumes,
        secrets={name: ref.secret for name, ref in sorted(spec.secrets.items()) if ref.secret is not None},
        rdma=spec.resources.rdma or 0,
        store_port=spec.rendezvous.port,
    )


def _hub_port(spec: JobSpec) -> int:
    """0: every node derives the same one from the job's key, for on a machine's own network jobs meet."""
    if spec.gate.port is not None:
        return spec.gate.port
    if spec.kubernetes.host_network:
        return 0
    return HUB_PORT + (spec.rendezvous.port == HUB_PORT)
