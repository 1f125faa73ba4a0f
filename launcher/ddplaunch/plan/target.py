"""The part of a plan that each target adds, and problems that several targets share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddplaunch.plan.source import UNPACKED_LIMIT
from ddplaunch.spec.problems import Problem

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


@dataclass(frozen=True)
class TargetPlan:
    """Facts about a job on one target, known before it runs there."""

    settings: object = None  # only its renderer reads it
    names: tuple[str, ...] = ()  # name or address of every node, if they are known beforehand
    master_addr: str | None = None  # node 0's address, if it is known beforehand
    hub_port: int | None = None  # if known beforehand; 0: every node derives it from the job's key
    starter: tuple[str, ...] = ()  # the words that start ranks with keepers, instead of mpirun's
    shows_messages: bool = False  # the scheduler, without being asked
    settles_nodes: bool = False  # the scheduler decides how many nodes of a range start, and all of them come
    source_limit: int = UNPACKED_LIMIT  # bytes of source to read; the renderer knows how many can travel
    keeps_no_files: bool = False  # what its ranks write goes with the job
    time_limit: float | None = None  # seconds for each attempt, if no scheduler counts them
    sees_folders: bool = False  # its nodes may see this machine's folders: ranks run in the job file's own


def problem(spec: JobSpec, path: str, found: str, wanted: str, hint: str) -> Problem:
    """Return a problem about the value at `path` in the job file."""
    return Problem(**spec.place(path), path=path, found=found, wanted=wanted, hint=hint)


def no_volume(spec: JobSpec, index: int, target: str, hint: str) -> Problem:
    """Return the problem that `target` cannot have volume number `index`."""
    return problem(
        spec, f"volumes[{index}]", spec.volumes[index].name, f"no such volume for --to {target}", hint
    )


def no_outputs(spec: JobSpec, target: str) -> list[Problem]:
    """Return the problem that `target` needs no volume for what ranks write."""
    if spec.outputs is None:
        return []
    hint = "it is for Kubernetes; here, files that ranks write in their folder are kept anyway"
    found = f"the volume {spec.outputs.volume}"
    return [problem(spec, "outputs", found, f"no `outputs` for --to {target}", hint)]


def no_secrets(spec: JobSpec, target: str) -> list[Problem]:
    """Return a problem for each secret and webhook in a Kubernetes cluster, which `target` cannot read."""
    return [
        problem(
            spec,
            f"secrets.{name}",
            "a Kubernetes Secret",
            f"`env` or `file` for --to {target}",
            f"for example {name}: {{env: {name}}}",
        )
        for name, reference in spec.secrets.items()
        if reference.secret is not None
    ] + [
        problem(
            spec,
            f"notify[{index}].webhook",
            "a Kubernetes Secret",
            f"`env` or `file` for --to {target}",
            "for example webhook: {env: SLACK_WEBHOOK}",
        )
        for index, each in enumerate(spec.notify)
        if each.webhook is not None and each.webhook.secret is not None
    ]


def no_events(spec: JobSpec, target: str) -> list[Problem]:
    """Return a problem for each `events`, because `target` has no place for them."""
    wanted = f"`webhook` or `command` for --to {target}"
    hint = "no scheduler shows the job there"
    return [
        problem(spec, f"notify[{index}].events", "true", wanted, hint)
        for index, each in enumerate(spec.notify)
        if each.events
    ]
