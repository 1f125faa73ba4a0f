"""Finds what of a job file Slurm cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ddplaunch.agent.job_file.plan import KEPT
from ddplaunch.plan import target

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec
    from ddplaunch.spec.problems import Problem


_BUNDLE_MOUNTS = "Slurm's own containers mount what config.json of the bundle names: add it there"


def problems(spec: JobSpec) -> list[Problem]:
    """Return all that `--to slurm` cannot do."""
    return [found for rule in _RULES for found in rule(spec)] + target.no_secrets(spec, "slurm")


def _newcomers(spec: JobSpec) -> Iterator[Problem]:
    if spec.newcomers == "join":
        hint = "Slurm settles the number of nodes before the job starts, and none comes later"
        yield target.problem(spec, "newcomers", "join", "refuse for --to slurm", hint)


def _volumes(spec: JobSpec) -> Iterator[Problem]:
    """A container mounts the node's folders, and nothing else; a plain node has them already."""
    for index, volume in enumerate(spec.volumes):
        if volume.host_path is None:
            hint = "Slurm knows no claims: name the folder of the node by `host_path`"
            yield target.no_volume(spec, index, "slurm", hint)
        elif spec.slurm.container.runtime == "none" and volume.host_path != volume.mount_path:
            hint = "without a container a folder is where it is; set slurm.container, or give its path"
            yield target.no_volume(spec, index, "slurm", hint)
        elif spec.slurm.container.runtime == "oci":
            yield target.no_volume(spec, index, "slurm", _BUNDLE_MOUNTS)


def _outputs(spec: JobSpec) -> Iterator[Problem]:
    yield from target.no_outputs(spec, "slurm")


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
    if runtime == "oci":
        yield from _bundle(spec)
    if spec.launch in KEPT:
        yield target.problem(
            spec,
            "slurm.container.runtime",
            f"{runtime} with launch: {spec.launch}",
            "none",
            "what starts the ranks would have to be in the container too: name programs of the nodes",
        )


def _bundle(spec: JobSpec) -> Iterator[Problem]:
    container = spec.slurm.container
    image = container.image or spec.image
    if image and not image.startswith("/"):
        yield target.problem(
            spec,
            "slurm.container.image",
            f'"{image}" with runtime: oci',
            "the absolute path of an OCI bundle, a folder with config.json and rootfs",
            "`umoci unpack` makes one of an image; put it where all nodes see it",
        )
    if container.mounts:
        yield target.problem(
            spec, "slurm.container.mounts", "mounts with runtime: oci", "none", _BUNDLE_MOUNTS
        )


def _resume(spec: JobSpec) -> Iterator[Problem]:
    """A container sees what is mounted into it; a folder elsewhere goes with the container."""
    container, folder = spec.slurm.container, spec.resume.dir
    if container.runtime in ("none", "oci") or folder is None:  # what a bundle mounts is not known here
        return
    mounts = [mount.removesuffix(":rw").split(":") for mount in container.mounts]
    kept = [words[-1] for words in mounts if words[-1] != "ro"]
    kept += [each.mount_path for each in spec.volumes if each.host_path and not each.read_only]
    if not f"{folder}/".startswith(tuple(f"{path}/" for path in kept)):
        hint = (
            f"what is written elsewhere goes with the container: add SRC:{folder}, of a folder that is shared"
        )
        yield target.problem(spec, "resume.dir", folder, "a folder on one of slurm.container.mounts", hint)


def _extra(spec: JobSpec) -> Iterator[Problem]:
    """Refuse many jobs in one, and a second dependency: sbatch takes the last, and the job would not wait."""
    array = "not an array: `sweep` makes many jobs of one file, each with values of its own"
    refused = [(r"(--array|-a)\b|hetjob\b", "one job of equal nodes", array)]
    if spec.slurm.dependency:
        refused.append((r"--dependency\b|-d", "one place", "write it into `slurm.dependency`"))
    for index, option in enumerate(spec.slurm.extra):
        for pattern, wanted, hint in refused:
            if re.match(pattern, option):
                yield target.problem(spec, f"slurm.extra[{index}]", option, wanted, hint)


_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _newcomers,
    _volumes,
    _outputs,
    _container,
    _resume,
    _extra,
)
