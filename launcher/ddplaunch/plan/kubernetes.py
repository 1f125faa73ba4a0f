"""Plans what a job file asks of Kubernetes, beside what every node is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddplaunch.agent.job_file import kubernetes
from ddplaunch.plan import kubernetes_limits, target
from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, Outputs, Volume
    from ddplaunch.spec.problems import Problem
    from ddplaunch.spec.secrets import SecretKey
    from ddplaunch.spec.targets import Kubernetes


@dataclass(frozen=True)
class KubernetesPlan:
    """`options` are the job file's own; the rest is what other sections say and only Kubernetes reads."""

    image: str
    options: Kubernetes
    volumes: tuple[Volume, ...] = ()
    outputs: Outputs | None = None
    secrets: Mapping[str, SecretKey] = field(default_factory=dict)
    webhooks: Mapping[int, SecretKey] = field(default_factory=dict)  # by their place in `notify`
    events: bool = False  # the hub makes them
    rdma: int = 0  # devices on every node
    gpu_type: str | None = None  # the value of a label of machines
    store_port: int | None = None  # torchrun's, where the job file names one


def make(spec: JobSpec) -> TargetPlan:
    """Return what `spec` asks of a cluster, and the port of its hub."""
    port = kubernetes.hub_port(spec.model_dump())
    return TargetPlan(_settings(spec), hub_port=port, keeps_no_files=not spec.volumes)


def problems(spec: JobSpec) -> list[Problem]:
    """Return all that `--to kubernetes` cannot do."""
    job = spec.model_dump()
    found = [*kubernetes_limits.problems(job), *kubernetes.problems(job)]
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
