"""What one target can do with a job file, and how its nodes are called there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ddplaunch.errors import UsageError
from ddplaunch.plan import kubernetes, kubernetes_limits
from ddplaunch.spec.problems import Problem, SpecError

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec

TARGETS = ("local", "slurm", "kubernetes")
"""In the order in which they are offered."""

_GATE_TIMEOUT = {"local": 120.0, "slurm": 120.0, "kubernetes": 600.0}

LOCAL_NAMES = ["127.0.0.1"]


def check(spec: JobSpec, target: str) -> None:
    """Raises SpecError with all that `target` cannot do, UsageError for a target there is not."""
    if target not in TARGETS:
        raise UsageError(f"there is no target {target!r}", hint=f"one of {', '.join(TARGETS)}")
    problems = [*_smoke_test(spec), *_CHECKS[target](spec)]
    if problems:
        raise SpecError(problems)


def names(spec: JobSpec, target: str) -> list[str]:
    """Name or address of every node, where they are known beforehand. Locally all are this machine."""
    return LOCAL_NAMES * spec.nodes if target == "local" else []


def master_address(target: str) -> str | None:
    """Node 0's address where the target knows it beforehand."""
    return LOCAL_NAMES[0] if target == "local" else None


def gate_timeout(spec: JobSpec, target: str) -> float:
    """Seconds of wall clock for the gate."""
    return _GATE_TIMEOUT[target] if spec.gate.timeout is None else spec.gate.timeout


def gate_port(spec: JobSpec, target: str) -> int | None:
    """The hub's port, where it is known beforehand."""
    return kubernetes.hub_port(spec) if target == "kubernetes" else spec.gate.port


def _smoke_test(spec: JobSpec) -> list[Problem]:
    """It is torch's collective that is tried."""
    if spec.gate.smoke_test and spec.launch == "mpi":
        return [
            _problem(spec, "gate.smoke_test", "true", "false with launch: mpi", "it tries torch's backends")
        ]
    return []


def _local(spec: JobSpec) -> list[Problem]:
    """A run on this machine mounts nothing and has no Secrets."""
    hint = "a run on this machine sees its folders as they are; give the paths in `command` or `env`"
    found = [_no_volume(spec, index, "local", hint) for index in range(len(spec.volumes))]
    return found + _no_secrets(spec, "local")


def _slurm(spec: JobSpec) -> list[Problem]:
    """A container mounts the node's folders, and nothing else; a plain node has them already."""
    found = []
    contained = spec.slurm.container.runtime != "none"
    for index, volume in enumerate(spec.volumes):
        if volume.host_path is None:
            hint = "Slurm knows no claims: name the folder of the node by `host_path`"
            found.append(_no_volume(spec, index, "slurm", hint))
        elif not contained and volume.host_path != volume.mount_path:
            hint = "without a container a folder is where it is; set slurm.container, or give its path"
            found.append(_no_volume(spec, index, "slurm", hint))
    if contained and not (spec.slurm.container.image or spec.image):
        found.append(
            _problem(
                spec,
                "slurm.container.image",
                "no image",
                f"an image for {spec.slurm.container.runtime}",
                "set it here, or `image` for all targets",
            )
        )
    if contained and spec.launch == "mpi":
        found.append(
            _problem(
                spec,
                "slurm.container.runtime",
                f"{spec.slurm.container.runtime} with launch: mpi",
                "none",
                "what starts the ranks would have to be in the container too: name programs of the nodes",
            )
        )
    for index, option in enumerate(spec.slurm.extra):
        if re.match(r"(--array|-a)\b|hetjob\b", option):
            found.append(
                _problem(
                    spec,
                    f"slurm.extra[{index}]",
                    option,
                    "one job of equal nodes",
                    "job arrays and heterogeneous jobs are not supported: submit the job file once for each",
                )
            )
    return found + _no_secrets(spec, "slurm")


_CHECKS = {"local": _local, "slurm": _slurm, "kubernetes": kubernetes_limits.problems}


def _no_volume(spec: JobSpec, index: int, target: str, hint: str) -> Problem:
    return _problem(
        spec, f"volumes[{index}]", spec.volumes[index].name, f"no such volume for --to {target}", hint
    )


def _no_secrets(spec: JobSpec, target: str) -> list[Problem]:
    return [
        _problem(
            spec,
            f"secrets.{name}",
            "a Kubernetes Secret",
            f"`env` or `file` for --to {target}",
            f"for example {name}: {{env: {name}}}",
        )
        for name, reference in spec.secrets.items()
        if reference.secret is not None
    ]


def _problem(spec: JobSpec, path: str, found: str, wanted: str, hint: str) -> Problem:
    return Problem(file=spec.name, path=path, found=found, wanted=wanted, hint=hint)
