"""Plans what a job file asks of Slurm: sbatch's options, and the container of the trainer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec, Volume

WARNING = 60
"""Seconds before the time limit at which the evidence is taken. Slurm may be 30 s early."""


@dataclass(frozen=True)
class SlurmPlan:
    """`options` as sbatch takes them, in order, each `--name` or `--name=value`."""

    options: tuple[str, ...]
    least_nodes: int = 0  # of a range; 0: the number is fixed
    exclude: str = ""  # nodes never to be used, in Slurm's notation
    comment: str = ""  # the user's own; without one, the verdict becomes it
    runtime: str = "none"  # none | pyxis | apptainer | singularity | oci
    image: str = ""
    mounts: tuple[str, ...] = ()  # SRC:DST or SRC:DST:ro
    gpus: bool = False


def make(spec: JobSpec) -> TargetPlan:
    """Return sbatch's options for `spec`, those of `slurm.extra` last, and srun's for ranks with keepers."""
    return TargetPlan(
        _settings(spec),
        hub_port=spec.gate.port,
        starter=tuple(_srun(spec)),
        shows_messages=spec.slurm.comment is None,
        settles_nodes=True,
        sees_folders=spec.slurm.container.runtime == "none",  # a container has folders of its own
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
    if not spec.min_nodes:  # for which Slurm would count the tasks of the fewest nodes, and give no more
        yield "--ntasks-per-node=1"  # the supervisor; the ranks are its children
    # Without any, a cluster with task affinity gives all ranks of a node one core.
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
    yield "--open-mode=append"  # a requeued job goes on in the same file
    # Without retries a node's failure is shown, not hidden by a second start.
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
    """Slurm counts whole minutes; a fraction is rounded up, as Slurm itself does."""
    minutes = math.ceil(seconds / 60)
    days, hours = divmod(minutes // 60, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes % 60:02}:00"


def _warning(limit: float | None) -> int:
    return WARNING if limit is None else max(10, min(WARNING, round(limit / 10)))


def _mount(volume: Volume) -> str:
    return f"{volume.host_path}:{volume.mount_path}" + (":ro" if volume.read_only else "")
