"""JobSpec to Plan: one plan for all nodes of the job, for one target. `api` calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from ddplaunch.agent.job_file import plan as job_file
from ddplaunch.agent.plan import JobPlan, NotifyPlan, WatchdogPlan
from ddplaunch.errors import SourceTooLargeError, UsageError
from ddplaunch.plan import local, source
from ddplaunch.plan.source import SourceFile
from ddplaunch.plan.target import TargetPlan, problem
from ddplaunch.spec.problems import SpecError
from ddplaunch.targets import LOCAL, find

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec
    from ddplaunch.spec.problems import Problem


Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Plan:
    """The plan of a job: what every node is told, and the files that travel with it."""

    target: str
    job: JobPlan
    own: object = None  # only the target's renderer reads it
    source: Mapping[str, SourceFile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # files below `source` that stay at home because they look private
    sweep: Mapping[str, str] = field(default_factory=dict)  # its own values in a sweep, as text by key
    family: str = ""  # its name in the job file, if `job` is that name with a number at the end
    keeps_no_files: bool = False  # what ranks write goes with the job
    missing_script: tuple[str, str] | None = None  # an error and its hint, for whoever starts the job

    def settings(self, kind: type[Settings]) -> Settings:
        """Return the target's own settings, with the type that its `plan` function makes."""
        assert isinstance(self.own, kind)
        return self.own

    def counted(self, number: int, room: int) -> Plan:
        """Return this plan with a number at the end of its name, which then has at most `room` characters."""
        end = f"-{number}"
        name = self.job.job[: room - len(end)].rstrip("-") + end
        return replace(self, job=replace(self.job, job=name), family=self.family or self.job.job)


def make(
    spec: JobSpec,
    target: str,
    base: Path,
    travels: source.Source | None = None,
) -> Plan:
    """Return the plan of `spec` on `target`. `source` paths are relative to `base`, the job file's folder.

    `travels`: the files of `source`, if they have been read already. Raises SpecError for what the target
    cannot do, and UsageError for a missing source or an unknown target.
    """
    there = find(target)
    data = spec.model_dump()
    if found := problems(spec, target):
        raise SpecError(found)
    made: TargetPlan = there.load(there.plan)(spec)
    if travels is None:
        travels = source.read(spec.source, base, made.source_limit, links_outside=made.sees_folders)
    job = job_file.make(
        data,
        target,
        there.gate_timeout,
        hub_port=made.hub_port,
        names=made.names,
        master_addr=made.master_addr,
        starter=_starter_words(spec, made.starter) if spec.launch in job_file.KEPT else (),
    )
    if made.shows_messages and not any(each.events for each in job.notify or []):
        job = replace(job, notify=[*(job.notify or []), NotifyPlan(events=True)])
    if made.settles_nodes:
        job = replace(job, min_nodes=None)
    if made.time_limit is not None:
        job = replace(job, time_limit=made.time_limit)
    if made.sees_folders and not (spec.source or spec.workdir):
        job = replace(job, workdir=str(base.absolute()))
    missing = _missing_script(spec, made, base, travels)
    return Plan(
        target,
        job,
        made.settings,
        travels.files,
        travels.left_out,
        spec.sweep_values,
        keeps_no_files=made.keeps_no_files,
        missing_script=missing,
    )


def problems(spec: JobSpec, target: str) -> list[Problem]:
    """Return everything in the job file that `target` cannot do. Raises UsageError for an unknown target."""
    there = find(target)
    found = [problem(spec, *each) for each in job_file.problems(spec.model_dump())]
    if spec.sweep:
        hint = "`ddplaunch.api.load_all` makes its jobs"
        found.append(problem(spec, "sweep", "a sweep", "one of its jobs", hint))
    found += there.load(there.problems)(spec)
    if not found and spec.launch == "srun" and not there.load(there.plan)(spec).starter:
        hint = "srun starts processes inside a Slurm job: use --to slurm, or launch: torchrun"
        found.append(problem(spec, "launch", "srun", f"another value for --to {target}", hint))
    return found


def source_errors(spec: JobSpec, target: str, base: Path) -> list[UsageError]:
    """Return an error for each path in `source` that cannot be read. The target must accept the job.

    `make` says whether all of them together are too large, or two have the same name.
    """
    there = find(target)
    made: TargetPlan = there.load(there.plan)(spec)
    return missing_sources(spec.source, base, links_outside=made.sees_folders)


def missing_sources(paths: Sequence[str], base: Path, *, links_outside: bool = True) -> list[UsageError]:
    """Return an error for each of the paths that cannot be read, relative to *base*.

    `links_outside`: as in `source.read`; True says least, for a job file whose target is not known.
    """
    found = []
    for path in paths:
        try:
            source.read((path,), base, links_outside=links_outside)
        except SourceTooLargeError:
            continue
        except UsageError as error:
            found.append(error)
    return found


def _missing_script(
    spec: JobSpec, made: TargetPlan, base: Path, travels: source.Source
) -> tuple[str, str] | None:
    """Return an error and a hint if the script is certainly not in the ranks' folder.

    In other cases it may be there: in an image, in a `workdir`, or as a program of another launcher.
    """
    script = PurePosixPath(spec.command[0])
    if spec.launch != "torchrun" or script.suffix != ".py" or spec.workdir or script.is_absolute():
        return None
    if ".." in script.parts:
        return None
    is_here = (base / script).is_file()
    if spec.source:
        if any(str(path) in travels.files for path in (script, *script.parents)):  # also if it is a link
            return None
        names = [name for name in travels.files if PurePosixPath(name).name == script.name]
        hint = "name it under `source`, too" if is_here else "only files that `source` names travel"
        hint = f"write command: [{names[0]}]" if names else hint
        return f"command: {script} is not among the files that `source` names", hint
    if is_here or not made.sees_folders:
        return None
    hint = "ranks run in the job file's folder; if the script is only on the nodes, set `workdir`"
    return f"command: there is no {script} in {base.absolute()}", hint


def adhoc(argv: Sequence[str], name: str, watchdog: WatchdogPlan | None = None) -> Plan:
    """Return the plan of `ddplaunch run -- ARGV`: one node, the user's own command line, nothing added
    to it.
    """
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


def _starter_words(spec: JobSpec, starter: Sequence[str]) -> list[str]:
    """Return the words, before the user's command, that start ranks with keepers: mpirun's or srun's.

    They run on node 0 alone, put `nproc_per_node` ranks on every node, in the order of the nodes, and have
    placeholders of `JobPlan`. Only here mpirun's flags are known. `starter` is what a target starts
    the ranks with in place of mpirun.

    They give the number of ranks and nothing else: every MPI spells mappings, bindings and transports
    differently, and these are set by its variables (agent/supervisor/launch_options.py, or the job file's
    `env`).
    """
    words = starter or ["mpirun", "-n", str(spec.nodes * spec.nproc_per_node)]
    script = spec.command[0]
    return [*words, "{keeper}", *(["{python}"] if script == "-m" or script.endswith(".py") else [])]
