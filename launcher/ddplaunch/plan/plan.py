"""JobSpec to Plan: one plan for all nodes of the job, for one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddplaunch.agent.contract import JobPlan, NotifyPlan, WatchdogPlan
from ddplaunch.agent.job_file import plan as job_file
from ddplaunch.errors import UsageError
from ddplaunch.plan import local, source, starter
from ddplaunch.plan.source import SourceFile
from ddplaunch.plan.target import TargetPlan, problem
from ddplaunch.spec.problems import SpecError
from ddplaunch.targets import LOCAL, find

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Plan:
    """The plan of a job: what every node is told, and the files that travel with it."""

    target: str
    job: JobPlan
    own: object = None  # what the target's renderer alone reads
    source: Mapping[str, SourceFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # files below `source` that stay at home because they look private
    sweep: Mapping[str, str] = field(default_factory=dict)  # its own values in a sweep, as text by key
    family: str = ""  # its name in the job file, where `job` has one with a number behind it

    def settings(self, kind: type[Settings]) -> Settings:
        """Return the target's own settings, of the type that its `plan` function makes."""
        assert isinstance(self.own, kind)
        return self.own

    def counted(self, number: int, room: int) -> Plan:
        """Return this plan under a name with a number behind it, in at most `room` characters."""
        end = f"-{number}"
        name = self.job.job[: room - len(end)].rstrip("-") + end
        return replace(self, job=replace(self.job, job=name), family=self.family or self.job.job)


def make(
    spec: JobSpec,
    target: str,
    base: Path,
    travels: source.Source | None = None,
) -> Plan:
    """The plan of `spec` on `target`; `source` paths are relative to `base`, the job file's folder.

    `travels`: the files of `source`, where they were read already.
    Raises SpecError for what the target cannot do, UsageError for a missing source or an unknown target.
    """
    there = find(target)
    data = spec.model_dump()
    found = [problem(spec, *each) for each in job_file.problems(data)]
    if spec.sweep:
        hint = "`ddplaunch.api.load_all` makes its jobs"
        found.append(problem(spec, "sweep", "a sweep", "one of its jobs", hint))
    if problems := [*found, *there.load(there.problems)(spec)]:
        raise SpecError(problems)
    made: TargetPlan = there.load(there.plan)(spec)
    if spec.launch == "srun" and not made.starter:
        hint = "srun starts processes inside of a job of Slurm: --to slurm, or launch: torchrun"
        raise SpecError([problem(spec, "launch", "srun", f"another value for --to {target}", hint)])
    if travels is None:
        travels = source.read(spec.source, base, made.source_limit, links_outside=made.sees_folders)
    job = job_file.make(
        data,
        target,
        there.gate_timeout,
        hub_port=made.hub_port,
        names=made.names,
        master_addr=made.master_addr,
        starter=starter.launch(spec, made.starter) if spec.launch in job_file.KEPT else (),
    )
    if made.shows_messages and not any(each.events for each in job.notify or []):
        job = replace(job, notify=[*(job.notify or []), NotifyPlan(events=True)])
    if made.settles_nodes:
        job = replace(job, min_nodes=None)
    if made.sees_folders and not (spec.source or spec.workdir):
        job = replace(job, workdir=str(base.absolute()))
    return Plan(target, job, made.settings, travels.files, travels.left_out, spec.sweep_values)


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
        watchdog=watchdog or WatchdogPlan(patient=True),
    )
    return Plan(LOCAL.name, job)
