"""Functions that lead from a job file, and the user's configuration, to the files that a scheduler gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddplaunch.agent.text.printable import shell_word
from ddplaunch.errors import DdplaunchError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends.job import Handle
    from ddplaunch.plan.plan import Plan
    from ddplaunch.plan.source import Source
    from ddplaunch.render import Rendered
    from ddplaunch.spec.changes import Change
    from ddplaunch.spec.config import Config, Profile
    from ddplaunch.spec.models import JobSpec
    from ddplaunch.spec.problems import Problem

_VARIABLE = "DDPLAUNCH_PROFILE"


class Choice(NamedTuple):
    """The target of jobs for which none is named, and the reason; "" if there is nothing to say."""

    target: str
    why: str = ""


def config_file() -> Path:
    """Return the path of the configuration, which may not exist."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".config"
    return folder / "ddplaunch" / "config.yaml"


def configuration() -> Config:
    """Return the user's configuration; an empty one if there is no file. Raises SpecError."""
    from ddplaunch.spec import config
    from ddplaunch.spec.problems import Problem, SpecError
    from ddplaunch.targets import names

    path = config_file()
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return config.Config(str(path))
    except (OSError, ValueError) as error:
        found = f"what cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8'})"
        hint = "fix it, or use `--profile none`"
        raise SpecError(
            [Problem(file=str(path), found=found, wanted="a configuration", hint=hint)]
        ) from error
    return config.parse(text, str(path), names())


def profile(name: str | None = None, to: str | None = None) -> Profile | None:
    """Return the profile `name`, else that of DDPLAUNCH_PROFILE, else the default one; None: none holds.

    `none` is none, and the configuration is not read. A default profile for another target than `to` does not
    hold. Raises UsageError for an unknown name, and for a named profile beside another
    target; SpecError for a broken configuration.
    """
    asked = name or os.environ.get(_VARIABLE, "")
    if asked == "none" or (not asked and not config_file().exists()):
        return None
    config = configuration()
    chosen = asked or config.default
    if not chosen:
        return None
    found = config.profiles.get(chosen)
    if found is None:
        by = "" if name else f"{_VARIABLE}: "
        known = ", ".join(config.profiles)
        raise UsageError(
            f"{by}there is no profile {chosen!r} in {config.file}",
            hint=f"one of {known}, or none" if known else "`ddplaunch schema config` describes that file",
        )
    if to and found.target not in ("", to):
        if name:
            raise UsageError(
                f"the profile {name} is for {found.target}, not for {to}",
                hint="leave out --to, or name another profile; `--profile none` uses none",
            )
        return None
    return found


def choose(jobs: Sequence[JobSpec] = (), profile: Profile | None = None) -> Choice:
    """Return the target of jobs for which none is named.

    It is the profile's target; otherwise that of the only scheduler section in the job file, if jobs can be
    sent there from this machine; otherwise this machine. No scheduler is asked.
    """
    if profile is not None and profile.target:
        place = _destination(profile.target, jobs)
        return Choice(profile.target, f"{place + '; ' if place else ''}profile {profile.name}")
    from ddplaunch.targets import LOCAL, names

    own = [name for name in names() if name != LOCAL.name and jobs and name in jobs[0].sections]
    if not own:
        return Choice(LOCAL.name)
    if len(own) > 1:
        return Choice(
            LOCAL.name, f"the job file has the sections {' and '.join(own)}; use --to to choose one"
        )
    place = _destination(own[0], jobs)
    if not place:
        return Choice(LOCAL.name, f"jobs cannot be sent to {own[0]} from this machine")
    return Choice(own[0], f"{place}; the job file has a section {own[0]}; use --to local to run it here")


def _destination(target: str, jobs: Sequence[JobSpec]) -> str:
    """Return where a target is, as seen from this machine; "" if it cannot be seen."""
    from ddplaunch.targets import find

    there = find(target)
    return str(there.load(there.reach)(jobs[0])) if there.reach and jobs else ""


_NAMED = 5
"""Files that a note names, at the most."""


class Validation(NamedTuple):
    """The problems of a job file, and notes about what is allowed in it but looks like a mistake."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    jobs: int = 1  # if more, they are those of its sweep
    errors: tuple[DdplaunchError, ...] = ()  # for which `submit` refuses a file whose keys are all correct
    targets: tuple[str, ...] = ()  # for which it was checked
    plans: tuple[Plan, ...] = ()  # for the first of these, if nothing is wrong


def load(file: str | Path, changes: Sequence[str] = (), *, profile: str | None = None) -> JobSpec:
    """Return the only job in a job file (`-`: standard input). Raises SpecError with all its problems.

    `changes`: other values for its keys, as in `env.LR=0.1`; UsageError for text in another form. `profile`:
    one from the user's configuration, with its defaults; without a name, the configuration is not read. The
    job remembers its file, as `job_file`: `source` is relative to that file's folder. In a job that is built
    in Python, `source` is relative to the current folder.
    """
    from ddplaunch.spec.load import load

    return load(file, read_changes(changes), _profile(profile))


def load_all(
    file: str | Path, changes: Sequence[str] = (), *, profile: str | Profile | None = None
) -> list[JobSpec]:
    """Return all jobs in a job file: one, or those of its `sweep`. Raises as `load` does.

    Each job of a sweep remembers its own values, as `sweep_values`.
    """
    from ddplaunch.spec.load import load_all

    return load_all(file, read_changes(changes), _profile(profile))


def validate(
    file: str | Path,
    changes: Sequence[str] = (),
    *,
    profile: str | Profile | None = None,
    to: str | None = None,
) -> Validation:
    """Return what makes `submit` refuse a job file before it asks a cluster; if nothing does, notes on it.

    `to`: the target; by default the profile's, otherwise each target that has a section in the file,
    otherwise local. Raises UsageError for bad `changes` and for an unknown target.
    """
    from ddplaunch.spec import load
    from ddplaunch.spec.problems import SpecError

    its = _profile(profile)
    try:
        found = load_all(file, changes, profile=its)
    except SpecError as error:
        from ddplaunch.plan import plan as planning

        missing = planning.missing_sources(error.source, Path(file).parent)
        return Validation(problems=error.problems, errors=tuple(missing))
    targets = _meant(found[0], to or (its.target if its else ""))
    checked = [_refusals(found, target) for target in targets]
    problems = list(dict.fromkeys(each for one in checked for each in one[0]))
    errors = {str(each): each for one in checked for each in one[1]}
    plans = checked[0][2]
    notes = (*load.notes(*(each.env for each in found)), *source_notes(found, plans))
    return Validation(
        tuple(problems), notes, len(found), tuple(errors.values()), tuple(targets), tuple(plans)
    )


def source_notes(jobs: Sequence[JobSpec], plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return notes about files that may be needed on the nodes and do not travel there. One plan for each
    job.
    """
    from ddplaunch.plan import imports

    notes: dict[str, None] = {}
    seen = set()
    for job, plan in zip(jobs, plans, strict=False):
        if (key := (job.job_file, job.source, job.command[0])) in seen:
            continue
        seen.add(key)
        if plan.left_out:
            notes[
                f"source: {_some(plan.left_out)} looked private and will not travel with the job; "
                "to include it, name it under `source`, or write !NAME in .ddplaunchignore"
            ] = None
        script, base = job.command[0], Path(job.job_file).parent
        travels = script.endswith(".py") and script in plan.source and (base / script).is_file()
        if travels and (imported := imports.missing(base / script, base, plan.source)):
            notes[
                f"source: {script} imports {_some(imported)}, which will not travel with the job; "
                "name it under `source`, unless the nodes have it installed"
            ] = None
    return tuple(notes)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")


def _meant(job: JobSpec, named: str) -> list[str]:
    """Return the targets for which a file is checked. Raises UsageError for an unknown one."""
    from ddplaunch.targets import LOCAL, find, names

    if named:
        return [find(named).name]
    return [name for name in names() if name != LOCAL.name and name in job.sections] or [LOCAL.name]


def _refusals(jobs: Sequence[JobSpec], target: str) -> tuple[list[Problem], list[DdplaunchError], list[Plan]]:
    """Return all for which `submit` would refuse the jobs; their plans, if there is nothing."""
    from ddplaunch.plan import plan as planning
    from ddplaunch.render import render

    problems = [each for job in jobs for each in planning.problems(job, target)]
    errors: list[DdplaunchError] = []
    if problems:
        for job in {(each.job_file, each.source): each for each in jobs}.values():
            errors += planning.missing_sources(job.source, Path(job.job_file).parent)
        return problems, errors, []
    for job in {(each.job_file, each.source): each for each in jobs}.values():
        errors += planning.source_errors(job, target, Path(job.job_file).parent)
    if errors:
        return [], errors, []
    plans: list[Plan] = []
    try:
        plans = plan_all(jobs, target)
    except DdplaunchError as error:
        return [], [error], []
    for each in plans:
        for check in (startable, render):
            try:
                check(each)
            except DdplaunchError as error:
                errors.append(error)
    return [], errors, [] if errors else plans


def plan(job: JobSpec, to: str = "local", *, after: Sequence[Handle | str] = ()) -> Plan:
    """Return what every node of the job gets on a target, and which files travel with it.

    `after`: jobs that must have succeeded before this one starts.
    Raises SpecError for what the target cannot do; UsageError for a missing source, an unknown target, and
    `after` where no job waits for another. With `after` the target is asked: NotFoundError, ClusterError.
    """
    return plan_all([job], to, after=after)[0]


def plan_all(jobs: Sequence[JobSpec], to: str = "local", *, after: Sequence[Handle | str] = ()) -> list[Plan]:
    """Return the plan of each job. What several name as `source` is read only once. Raises as `plan` does."""
    from ddplaunch.plan import plan
    from ddplaunch.plan.source import Source

    read: dict[tuple[str, tuple[str, ...]], Source] = {}
    plans = []
    for job in _ordered(jobs, to, after):
        named = (job.job_file, job.source)
        plans.append(plan.make(job, to, Path(job.job_file).parent, read.get(named)))
        read[named] = Source(plans[-1].source, plans[-1].left_out)
    return plans


def render(job: JobSpec | Plan, to: str | None = None) -> Rendered:
    """Return the files that `submit` sends, byte for byte. Raises SpecError and UsageError.

    A plan already has a target; a job's is "local" if `to` names no other.
    """
    from ddplaunch.render import render

    return render(planned(job, to))


def startable(plan: Plan) -> Plan:
    """Return the plan. Raises UsageError if its script is certainly not where the ranks will look for it."""
    if plan.missing_script:
        raise UsageError(*plan.missing_script)
    return plan


def planned(job: JobSpec | Plan, to: str | None, after: Sequence[Handle | str] = ()) -> Plan:
    """Return the plan of a job, or the plan unchanged. Raises UsageError for one with another target."""
    from ddplaunch.plan.plan import Plan

    if isinstance(job, (str, os.PathLike)):
        raise UsageError(f"{job} is a file's name, not a job", hint=f'read it first: load("{job}")')
    if not isinstance(job, Plan):
        return plan(job, to or "local", after=after)
    if to not in (None, job.target) or after:
        raise UsageError(
            f"{job.job.job} is already planned for {job.target}",
            hint="give `plan` the target and the jobs that come before this one",
        )
    return job


def _ordered(jobs: Sequence[JobSpec], to: str, after: Sequence[Handle | str]) -> list[JobSpec]:
    """Return the jobs as jobs that start when those of `after` have succeeded. Raises as `plan` does."""
    if not after:
        return list(jobs)
    from ddplaunch.api import submitted as named
    from ddplaunch.targets import find

    target = find(to)
    if not target.after:
        reason = target.without_order or f"jobs on {to} cannot wait for one another"
        raise UsageError(
            f"--after: {reason}",
            hint=f"`ddplaunch status --watch {shell_word(str(after[0]))} && ddplaunch submit …` waits here",
        )
    handles = [named.find(each) if isinstance(each, str) else each for each in after]
    for handle in handles:
        if handle.target != to:
            raise UsageError(
                f"--after: {handle} is not a job on {to}; a job can only wait for jobs on its own scheduler",
                hint=f"`ddplaunch status --watch {handle} && ddplaunch submit …` waits here",
            )
    ordered: list[JobSpec] = target.load(target.after)(jobs, handles)
    return ordered


def _profile(named: str | Profile | None) -> Profile | None:
    """Return the profile with this name. Raises UsageError and SpecError."""
    if not isinstance(named, str):
        return named

    return profile(named)


def read_changes(changes: Sequence[str]) -> list[Change]:
    """Return the changes that these texts mean. Raises UsageError."""
    if not changes:
        return []
    from ddplaunch.spec.changes import read

    found = []
    for text in changes:
        try:
            found.append(read(text))
        except ValueError as error:
            key = text.partition("=")[0]  # the value may be a secret
            raise UsageError(f"--set: {key!r} does not change a job file", hint=str(error)) from error
    return found
