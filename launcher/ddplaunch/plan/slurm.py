"""Plans what a job file asks of Slurm: sbatch's options, and the container of the trainer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddplaunch.agent.job_file.plan import KEPT
from ddplaunch.plan import target
from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, Volume
    from ddplaunch.spec.problems import Problem


WARNING = 60
"""Seconds before the time limit at which evidence is taken. Slurm may be 30 s early."""


@dataclass(frozen=True)
class SlurmPlan:
    """`options` in the form that sbatch takes, in order, each `--name` or `--name=value`."""

    options: tuple[str, ...]
    least_nodes: int = 0  # of a range; 0: the number is fixed
    exclude: str = ""  # nodes that must never be used, in Slurm's notation
    comment: str = ""  # the user's own; if there is none, the verdict becomes it
    runtime: str = "none"  # none | pyxis | apptainer | singularity | oci
    image: str = ""
    mounts: tuple[str, ...] = ()  # SRC:DST or SRC:DST:ro
    gpus: bool = False


def make(spec: JobSpec) -> TargetPlan:
    """Return sbatch's options for `spec`, with those of `slurm.extra` last, and srun's for ranks with
    keepers.
    """
    return TargetPlan(
        _settings(spec),
        hub_port=spec.gate.port,
        starter=tuple(_srun(spec)),
        shows_messages=spec.slurm.comment is None,
        settles_nodes=True,
        sees_folders=spec.slurm.container.runtime == "none",  # a container has its own folders
    )


def _settings(spec: JobSpec) -> SlurmPlan:
    container = spec.slurm.container
    return SlurmPlan(
        options=tuple(_options(spec)),
        least_nodes=spec.min_nodes or 0,
        exclude=spec.slurm.exclude or "",
        comment=spec.slurm.comment or "",
        runtime=container.runtime,
        image=container.image or spec.image or "",
        mounts=(*container.mounts, *map(_mount, spec.volumes)),
        gpus=bool(spec.resources.gpus),
    )


def _options(spec: JobSpec) -> Iterator[str]:
    yield f"--job-name={spec.name}"
    least = f"{spec.min_nodes}-" if spec.min_nodes else ""
    yield f"--nodes={least}{spec.nodes}"
    if not spec.min_nodes:  # with one, Slurm would count the tasks of the fewest nodes and give no more
        yield "--ntasks-per-node=1"  # the supervisor, whose children are the ranks
    # Without any, a cluster with task affinity gives all ranks of a node a single core.
    yield f"--cpus-per-task={math.ceil(spec.resources.cpus or spec.nproc_per_node)}"
    if spec.resources.memory is not None:
        yield f"--mem={math.ceil(spec.resources.memory / (1 << 20))}M"
    if spec.resources.gpus:
        kind = f"{spec.resources.gpu_type}:" if spec.resources.gpu_type else ""
        yield f"--gres=gpu:{kind}{spec.resources.gpus}"
    given = {
        "partition": spec.slurm.partition,
        "account": spec.slurm.account,
        "qos": spec.slurm.qos,
        "time": None if spec.slurm.time is None else _time(spec.slurm.time),
        "constraint": spec.slurm.constraint,
        "reservation": spec.slurm.reservation,
        "nodelist": spec.slurm.nodelist,
        "exclude": spec.slurm.exclude,
        "switches": spec.slurm.switches,
        "nice": spec.slurm.nice,
        "comment": spec.slurm.comment,
        "dependency": spec.slurm.dependency,
    }
    yield from (f"--{name}={value}" for name, value in given.items() if value is not None)
    if spec.slurm.exclusive:
        yield "--exclusive"
    yield "--output=%x-%j.out"
    yield "--open-mode=append"  # a requeued job continues the same file
    # Without retries, a node's failure is shown rather than hidden by a second start.
    yield "--requeue" if spec.retries else "--no-requeue"
    before = 0 if spec.signal is None else math.ceil(spec.signal.before)
    yield f"--signal=B:URG@{max(_warning(spec.slurm.time), before)}"
    yield from spec.slurm.extra


def _srun(spec: JobSpec) -> Iterator[str]:
    if spec.slurm.mpi is None and spec.launch != "srun":
        return
    cores_of_a_rank = max(1, int(spec.resources.cpus or 0) // spec.nproc_per_node)
    yield from ("srun", f"--mpi={spec.slurm.mpi or 'none'}", f"--nodes={spec.nodes}")
    yield f"--ntasks={spec.nodes * spec.nproc_per_node}"
    yield f"--ntasks-per-node={spec.nproc_per_node}"
    yield f"--cpus-per-task={cores_of_a_rank}"
    yield from ("--distribution=block", "--kill-on-bad-exit=1")


def _time(seconds: float) -> str:
    """Return the time for Slurm, which counts whole minutes. A fraction is rounded up, as Slurm itself
    does.
    """
    minutes = math.ceil(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes % 60:02}:00"


def _warning(limit: float | None) -> int:
    return WARNING if limit is None else max(10, min(WARNING, round(limit / 10)))


def _mount(volume: Volume) -> str:
    return f"{volume.host_path}:{volume.mount_path}" + (":ro" if volume.read_only else "")


_BUNDLE_MOUNTS = "Slurm's own containers mount what the bundle's config.json lists: add it there"


def problems(spec: JobSpec) -> list[Problem]:
    """Return everything that `--to slurm` cannot do."""
    return [found for rule in _RULES for found in rule(spec)] + target.no_secrets(spec, "slurm")


def _newcomers(spec: JobSpec) -> Iterator[Problem]:
    if spec.newcomers == "join":
        hint = "Slurm fixes the number of nodes before the job starts; no node joins later"
        yield target.problem(spec, "newcomers", "join", "refuse for --to slurm", hint)


def _volumes(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each volume that cannot be there.

    A container mounts folders of the node and nothing else. Without a container they are there already.
    """
    for index, volume in enumerate(spec.volumes):
        if volume.host_path is None:
            hint = "Slurm has no claims: name the node's folder with `host_path`"
            yield target.no_volume(spec, index, "slurm", hint)
        elif spec.slurm.container.runtime == "none" and volume.host_path != volume.mount_path:
            hint = (
                "without a container, folders keep their own paths; set slurm.container, or use the "
                "folder's path"
            )
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
            "set it here, or set `image` for all targets",
        )
    if runtime == "oci":
        yield from _bundle(spec)
    if spec.launch in KEPT:
        yield target.problem(
            spec,
            "slurm.container.runtime",
            f"{runtime} with launch: {spec.launch}",
            "none",
            "the launcher would have to be in the container, too: use the nodes' own programs",
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
            "`umoci unpack` makes one from an image; put it where all nodes see it",
        )
    if container.mounts:
        yield target.problem(
            spec, "slurm.container.mounts", "mounts with runtime: oci", "none", _BUNDLE_MOUNTS
        )


def _resume(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem if the container does not mount the folder, which would then go with the container."""
    container, folder = spec.slurm.container, spec.resume.dir
    if container.runtime in ("none", "oci") or folder is None:  # what a bundle mounts is not known here
        return
    mounts = [mount.removesuffix(":rw").split(":") for mount in container.mounts]
    kept = [words[-1] for words in mounts if words[-1] != "ro"]
    kept += [each.mount_path for each in spec.volumes if each.host_path and not each.read_only]
    if not f"{folder}/".startswith(tuple(f"{path}/" for path in kept)):
        hint = (
            f"files written elsewhere are lost with the container: add SRC:{folder}, where SRC is a shared "
            "folder"
        )
        yield target.problem(spec, "resume.dir", folder, "a folder on one of slurm.container.mounts", hint)


def _extra(spec: JobSpec) -> Iterator[Problem]:
    """Refuse several jobs in one, and a second dependency: sbatch takes the last one, and the job would not
    wait.
    """
    array = "no array: `sweep` makes many jobs from one file, each with its own values"
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
