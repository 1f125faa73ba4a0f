"""Submits jobs: a single one, all of a sweep or none, or only the gate of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ddplaunch.api.files import planned, startable
from ddplaunch.api.submitted import connected
from ddplaunch.errors import DdplaunchError, UsageError

if TYPE_CHECKING:
    from ddplaunch.backends import Backend
    from ddplaunch.backends.job import Handle
    from ddplaunch.plan.plan import Plan
    from ddplaunch.spec.config import Profile
    from ddplaunch.spec.models import JobSpec


def submit(job: JobSpec | Plan, to: str | None = None, *, after: Sequence[Handle | str] = ()) -> Handle:
    """Submit the job, and return its handle when it is accepted. The job goes on when this process ends.

    `to` and `after` are as for `plan`, unless the job is a plan already. Raises as `plan` does, and
    ClusterError if the target refuses the job or cannot be reached; its subclass UncertainError means that
    the target may have the job.
    """
    from ddplaunch.backends import interrupts
    from ddplaunch.render import render

    with interrupts.let_through():
        rendered = render(startable(planned(job, to, after)))
    with connected(rendered.target) as backend:
        return backend.submit(rendered)


def try_out(plans: Sequence[Plan]) -> list[str]:
    """Ask the scheduler about jobs without submitting them. Returns its answers, or [] if it cannot be asked.

    Raises ClusterError if it would refuse one, or cannot be reached.
    """
    from ddplaunch.backends import Tries
    from ddplaunch.render import render

    with connected(plans[0].target) as backend:
        return [backend.try_out(render(each)) for each in plans] if isinstance(backend, Tries) else []


def submit_all(
    jobs: Sequence[JobSpec | Plan],
    to: str | None = None,
    *,
    after: Sequence[Handle | str] = (),
    accepted: Callable[[Handle], object] | None = None,
    cancelling: Callable[[list[Handle]], object] | None = None,
) -> list[Handle]:
    """Submit all jobs or none, such as those of a sweep, and return their handles.

    All are checked before the first one is sent. If the target refuses one, or after a Ctrl-C, those before
    it are cancelled and the error is raised; it has a note about each job that could not be cancelled and
    goes on. `accepted` is called with each handle as soon as there is one, `cancelling` with those that are
    given up. Raises as `submit` does, and UsageError for jobs of several targets.
    """
    from ddplaunch.backends import interrupts
    from ddplaunch.render import render

    if not jobs:
        return []
    with interrupts.let_through():
        plans = _planned(jobs, to, after)
        for plan in plans:
            # This checks it. It is not kept, because a thousand rendered jobs take hundreds of MB.
            render(startable(plan))
    handles: list[Handle] = []
    with connected(plans[0].target) as backend:
        try:
            for plan in plans:
                with interrupts.let_through():
                    rendered = render(plan)
                handles.append(backend.submit(rendered))
                if accepted is not None:
                    accepted(handles[-1])
            with interrupts.let_through():
                pass  # a Ctrl-C during the last one still counts
        except (DdplaunchError, KeyboardInterrupt) as error:
            with interrupts.held_off():
                if handles and cancelling is not None:
                    cancelling(handles)
                _take_back(backend, handles, error)
            raise
    return handles


def doctor(
    job: JobSpec | None = None,
    to: str = "local",
    *,
    nodes: int | None = None,
    profile: str | Profile | None = None,
    smoke_test: bool = False,
) -> Handle:
    """Submit only the job's gate, which checks all nodes and trains nothing, and return its handle.

    Without a job, the checks are those of a job that has just the defaults of `profile`, on so many `nodes`,
    by default 1. With `smoke_test`, all ranks also import torch and run a collective. When it has ended,
    `diagnose` has the results. Raises as `submit` does, and UsageError for `nodes` or `profile` together with
    a job, and for a target that needs an image if there is none.
    """
    from ddplaunch.backends import interrupts
    from ddplaunch.render import render
    from ddplaunch.targets import find

    target = find(to)
    if job is not None and nodes is not None:
        raise UsageError(
            "--nodes cannot be combined with a job file", hint="the job file sets the number of nodes"
        )
    if job is not None and profile is not None:
        raise UsageError("the job already has its profile's defaults", hint="give the profile to `load`")
    if job is None:
        job = _without_job_file(nodes or 1, profile)
    if target.check_up:
        job = target.load(target.check_up)(job)
    if smoke_test:
        job = job.model_copy(update={"gate": job.gate.model_copy(update={"smoke_test": True})})
    with interrupts.let_through():
        rendered = render(planned(job, to), gate_only=True)
    if not target.check_up:
        rendered = dataclasses.replace(rendered, job="doctor")
    with connected(to) as backend:
        return backend.submit(rendered)


def _without_job_file(nodes: int, profile: str | Profile | None) -> JobSpec:
    """Return a job for so many nodes with the profile's defaults. Raises SpecError and UsageError."""
    from ddplaunch.api import files
    from ddplaunch.spec.load import parse_all

    found = files.profile(profile) if isinstance(profile, str) else profile
    text = f"apiVersion: ddplaunch/v1\nname: doctor\nnodes: {nodes}\ncommand: ['true']\n"
    return parse_all(text.encode(), found.file if found else "doctor", profile=found)[0]


def _planned(jobs: Sequence[JobSpec | Plan], to: str | None, after: Sequence[Handle | str]) -> list[Plan]:
    """Return the plans of all jobs, which must have the same target. Raises as `submit_all` does."""
    from ddplaunch.api.files import plan_all
    from ddplaunch.plan.plan import Plan

    unplanned = [each for each in jobs if not isinstance(each, Plan)]
    made = iter(plan_all(unplanned, to or "local", after=after))
    plans = [planned(each, to, after) if isinstance(each, Plan) else next(made) for each in jobs]
    targets = sorted({each.target for each in plans})
    if len(targets) > 1:
        raise UsageError(
            f"these jobs are planned for {' and '.join(targets)}",
            hint="submit the jobs for each target separately",
        )
    return plans


def _take_back(backend: Backend, handles: Sequence[Handle], error: BaseException) -> None:
    """Cancel the jobs, and add a note to the error about each one that goes on."""
    for handle in reversed(handles):  # the last one has done least, and may not have started
        try:
            backend.cancel(handle)
        except DdplaunchError as refused:
            error.add_note(f"{handle} keeps running: {refused.message}")
