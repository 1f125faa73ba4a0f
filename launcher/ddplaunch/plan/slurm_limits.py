"""Finds what of a job file Slurm cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ddplaunch.plan import target

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec
    from ddplaunch.spec.problems import Problem


def problems(spec: JobSpec) -> list[Problem]:
    """Return all that `--to slurm` cannot do."""
    return [found for rule in _RULES for found in rule(spec)] + target.no_secrets(spec, "slurm")


def _volumes(spec: JobSpec) -> Iterator[Problem]:
    """A container mounts the node's folders, and nothing else; a plain node has them already."""
    for index, volume in enumerate(spec.volumes):
        if volume.host_path is None:
            hint = "Slurm knows no claims: name the folder of the node by `host_path`"
            yield target.no_volume(spec, index, "slurm", hint)
        elif spec.slurm.container.runtime == "none" and volume.host_path != volume.mount_path:
            hint = "without a container a folder is where it is; set slurm.container, or give its path"
            yield target.no_volume(spec, index, "slurm", hint)


def _container(spec: JobSpec) -> Iterator[Problem]:
    runtime = spec.slurm.container.runtime
    if runtime == "none":
        return
    if not (spec.slurm.container.image or spec.image):
        yield target.problem(
            spec,
            "slurm.container.image",
            "no image",
            f"an image for {runtime}",
            "set it here, or `image` for all targets",
        )
    if spec.launch == "mpi":
        yield target.problem(
            spec,
            "slurm.container.runtime",
            f"{runtime} with launch: mpi",
            "none",
            "what starts the ranks would have to be in the container too: name programs of the nodes",
        )


def _one_job(spec: JobSpec) -> Iterator[Problem]:
    for index, option in enumerate(spec.slurm.extra):
        if re.match(r"(--array|-a)\b|hetjob\b", option):
            yield target.problem(
                spec,
                f"slurm.extra[{index}]",
                option,
                "one job of equal nodes",
                "job arrays and heterogeneous jobs are not supported: submit the job file once for each",
            )


_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (_volumes, _container, _one_job)
