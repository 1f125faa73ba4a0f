"""JobSpec to Plan: one plan for all nodes of the job, for one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddplaunch.agent.contract import GatePlan, JobPlan, ResourcePlan, WatchdogPlan
from ddplaunch.errors import UsageError
from ddplaunch.plan import local, mpi, source, torchrun
from ddplaunch.plan.source import SourceFile
from ddplaunch.plan.target import TargetPlan, problem
from ddplaunch.spec.problems import Problem, SpecError
from ddplaunch.targets import LOCAL, find

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, SecretRef

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Plan:
    """The plan of a job: what every node is told, and the files that travel with it."""

    target: str
    job: JobPlan
    own: object = None  # what the target's renderer alone reads
    source: Mapping[str, SourceFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # files below `source` that stay at home because they look private

    def settings(self, kind: type[Settings]) -> Settings:
        """Return the target's own settings, of the type that its `plan` function makes."""
        assert isinstance(self.own, kind)
        return self.own


def make(spec: JobSpec, target: str, base: Path) -> Plan:
    """The plan of `spec` on `target`; `source` paths are relative to `base`, the job file's folder.

    Raises SpecError for what the target cannot do, UsageError for a missing source or an unknown target.
    """
    there = find(target)
    if problems := [*_smoke_test(spec), *there.load(there.problems)(spec)]:
        raise SpecError(problems)
    made: TargetPlan = there.load(there.plan)(spec)
    travels = source.read(spec.source, base, made.source_limit)
    job = JobPlan(
        job=spec.name,
        nodes=spec.nodes,
        nproc_per_node=spec.nproc_per_node,
        launch=mpi.launch(spec, made.mpi) if spec.launch == "mpi" else torchrun.launch(spec),
        command=list(spec.command),
        python=spec.python,
        names=list(made.names),
        master_addr=spec.rendezvous.address or made.master_addr,
        master_port=spec.rendezvous.port,
        mpi=spec.launch == "mpi",
        max_restarts=spec.rendezvous.max_restarts,
        retries=spec.retries,
        env=dict(sorted(spec.env.items())),
        secrets={name: _secret(name, reference) for name, reference in sorted(spec.secrets.items())},
        workdir=spec.workdir,
        platform=target,
        gate=GatePlan(
            enabled=spec.gate.enabled,
            timeout=there.gate_timeout if spec.gate.timeout is None else spec.gate.timeout,
            port=made.hub_port,
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
        own=made.settings,
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
        names=[local.ADDRESS],
        master_addr=local.ADDRESS,
        platform=LOCAL.name,
        watchdog=watchdog or WatchdogPlan(),
    )
    return Plan(LOCAL.name, job)


def _smoke_test(spec: JobSpec) -> list[Problem]:
    """It is torch's collective that is tried."""
    if spec.gate.smoke_test and spec.launch == "mpi":
        hint = "it tries torch's backends"
        return [problem(spec, "gate.smoke_test", "true", "false with launch: mpi", hint)]
    return []


def _secret(name: str, reference: SecretRef) -> dict[str, str]:
    if reference.file is not None:
        return {"file": reference.file}
    # The value of a Secret is a variable of the container, under the name that the ranks shall see.
    return {"env": reference.env or name}
