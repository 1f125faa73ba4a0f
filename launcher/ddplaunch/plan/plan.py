"""JobSpec to Plan: one plan for all nodes of the job, for one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddplaunch.agent.contract import GatePlan, JobPlan, ResourcePlan, WatchdogPlan
from ddplaunch.errors import UsageError
from ddplaunch.plan import kubernetes, mpi, slurm, source, targets, torchrun
from ddplaunch.plan.kubernetes import KubernetesPlan
from ddplaunch.plan.slurm import SlurmPlan
from ddplaunch.plan.source import SourceFile

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, SecretRef


@dataclass(frozen=True)
class Plan:
    """What every node of a job is told, and the files that travel with it."""

    target: str
    job: JobPlan
    slurm: SlurmPlan | None = None
    kubernetes: KubernetesPlan | None = None
    source: Mapping[str, SourceFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # files below `source` that stay at home because they look private


def make(spec: JobSpec, target: str, base: Path) -> Plan:
    """The plan of `spec` on `target`; `source` paths are relative to `base`, the job file's folder.

    Raises SpecError for what the target cannot do, UsageError for a missing source or an unknown target.
    """
    targets.check(spec, target)
    travels = source.read(spec.source, base, source.LOCAL_LIMIT if target == "local" else source.LIMIT)
    job = JobPlan(
        job=spec.name,
        nodes=spec.nodes,
        nproc_per_node=spec.nproc_per_node,
        launch=mpi.launch(spec, target) if spec.launch == "mpi" else torchrun.launch(spec),
        command=list(spec.command),
        python=spec.python,
        names=targets.names(spec, target),
        master_addr=spec.rendezvous.address or targets.master_address(target),
        master_port=spec.rendezvous.port,
        mpi=spec.launch == "mpi",
        max_restarts=spec.rendezvous.max_restarts,
        retries=spec.retries,
        env=dict(sorted(spec.env.items())),
        secrets={name: _secret(name, reference) for name, reference in sorted(spec.secrets.items())},
        workdir=spec.workdir,
        gate=GatePlan(
            enabled=spec.gate.enabled,
            timeout=targets.gate_timeout(spec, target),
            port=targets.gate_port(spec, target),
            interface=spec.gate.interface,
            skip=list(spec.gate.skip),
            smoke_test=spec.gate.smoke_test or None,
        ),
        watchdog=WatchdogPlan(
            notice_after=spec.watchdog.notice_after,
            kill_after=None if spec.watchdog.kill_after == "never" else spec.watchdog.kill_after,
            privileges=spec.watchdog.privileges,
        ),
        resources=ResourcePlan(
            gpus=spec.resources.gpus,
            cpus=spec.resources.cpus,
            memory=spec.resources.memory,
            shm=spec.resources.shm,
            rdma=spec.resources.rdma,
        ),
    )
    return Plan(
        target,
        job,
        slurm=slurm.make(spec) if target == "slurm" else None,
        kubernetes=kubernetes.make(spec) if target == "kubernetes" else None,
        source=travels.files,
        left_out=travels.left_out,
    )


def adhoc(argv: Sequence[str], name: str, watchdog: WatchdogPlan | None = None) -> Plan:
    """The plan of `ddplaunch run -- ARGV`: one node, the user's own command line, nothing added to it."""
    if not argv:
        raise UsageError("nothing to run", hint="give a command: ddplaunch run -- torchrun train.py")
    job = JobPlan(
        job=name,
        nodes=1,
        nproc_per_node=None,
        launch=[],
        command=list(argv),
        names=targets.LOCAL_NAMES,
        master_addr=targets.master_address("local"),
        watchdog=watchdog or WatchdogPlan(),
    )
    return Plan("local", job)


def _secret(name: str, reference: SecretRef) -> dict[str, str]:
    if reference.file is not None:
        return {"file": reference.file}
    # The value of a Secret is a variable of the container, under the name that the ranks shall see.
    return {"env": reference.env or name}
