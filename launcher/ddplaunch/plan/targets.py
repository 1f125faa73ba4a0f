"""What one target can do with a job file, and how its nodes are called there."""

from __future__ import annotations

from ddplaunch.errors import UsageError
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import Problem, SpecError

TARGETS = ("local", "slurm", "kubernetes")
"""In the order in which they are offered."""

_BUILT = ("local",)

LOCAL_NAMES = ["127.0.0.1"]


def check(spec: JobSpec, target: str) -> None:
    """Raises SpecError with all that `target` cannot do, UsageError for a target there is not."""
    if target not in TARGETS:
        raise UsageError(f"there is no target {target!r}", hint=f"one of {', '.join(TARGETS)}")
    if target not in _BUILT:
        raise UsageError(f"this version cannot run jobs on {target} yet", hint="use --to local")
    problems = [*_not_built(spec), *_local(spec)]
    if problems:
        raise SpecError(problems)


def names(spec: JobSpec) -> list[str]:
    """Name or address of every node. Locally all nodes are this machine."""
    return LOCAL_NAMES * spec.nodes


def master_address(target: str) -> str | None:
    """Node 0's address where the target knows it beforehand."""
    return LOCAL_NAMES[0] if target == "local" else None


def _not_built(spec: JobSpec) -> list[Problem]:
    found = []
    if spec.launch == "mpi":
        found.append(_problem(spec, "launch", "mpi", "torchrun", "this version starts torchrun jobs only"))
    if spec.gate.smoke_test:
        found.append(
            _problem(spec, "gate.smoke_test", "true", "false", "this version's gate runs no collective yet")
        )
    return found


def _local(spec: JobSpec) -> list[Problem]:
    """A run on this machine mounts nothing and has no Secrets."""
    found = []
    for index, volume in enumerate(spec.volumes):
        found.append(
            _problem(
                spec,
                f"volumes[{index}]",
                volume.name,
                "no volumes for --to local",
                "a run on this machine sees its folders as they are; give the paths in `command` or `env`",
            )
        )
    for name, reference in spec.secrets.items():
        if reference.secret is not None:
            found.append(
                _problem(
                    spec,
                    f"secrets.{name}",
                    "a Kubernetes Secret",
                    "`env` or `file` for --to local",
                    f"for example {name}: {{env: {name}}}",
                )
            )
    return found


def _problem(spec: JobSpec, path: str, found: str, wanted: str, hint: str) -> Problem:
    return Problem(file=spec.name, path=path, found=found, wanted=wanted, hint=hint)
