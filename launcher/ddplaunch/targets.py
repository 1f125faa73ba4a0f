"""The places to which a job can be sent: one `Target` each, for ours and for those of other packages.

Another package adds one by an entry point of the group `ddplaunch.targets`, whose name is what follows `--to`
and whose object is a `Target`. Ours stand in pyproject.toml in the same way. A target names its parts as
`module:attribute`, and each is imported when it is first needed: a command pays for nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from ddplaunch.errors import UsageError

GROUP: Final = "ddplaunch.targets"


@dataclass(frozen=True)
class Target:
    """One scheduler, as far as ddplaunch knows it. Raises ValueError for a name that begins no handle."""

    name: str
    """Follows `--to`, begins every handle, and is the key of the section in the job file."""
    section: str
    """A `spec.fields.Section` whose keys all have defaults: what a job file can say of this target alone."""
    problems: str
    """`(JobSpec) -> list[Problem]`: all of a good job file that this target cannot do."""
    plan: str
    """`(JobSpec) -> plan.target.TargetPlan`, for a job file that has no such problems."""
    render: str
    """`(Plan, *, gate_only: bool) -> Rendered`; with `gate_only` the job ends with its gate."""
    connect: str
    """`() -> Backend`."""
    gate_timeout: float = 120.0
    """Seconds of wall clock for the gate, where the job file says nothing."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+", self.name):
            raise ValueError(f"{self.name!r} cannot name a target: wanted small letters")

    def load(self, part: str) -> Any:
        """Return the object that `part`, one of the fields above, names."""
        module, _, attribute = part.partition(":")
        return getattr(import_module(module), attribute)


LOCAL: Final = Target(
    "local",
    section="ddplaunch.spec.targets:Local",
    problems="ddplaunch.plan.local:problems",
    plan="ddplaunch.plan.local:make",
    render="ddplaunch.render.local:render",
    connect="ddplaunch.backends.local.backend:connect",
)
SLURM: Final = Target(
    "slurm",
    section="ddplaunch.spec.targets:Slurm",
    problems="ddplaunch.plan.slurm_limits:problems",
    plan="ddplaunch.plan.slurm:make",
    render="ddplaunch.render.slurm:render",
    connect="ddplaunch.backends.slurm.backend:connect",
)
KUBERNETES: Final = Target(
    "kubernetes",
    section="ddplaunch.spec.targets:Kubernetes",
    problems="ddplaunch.plan.kubernetes_limits:problems",
    plan="ddplaunch.plan.kubernetes:make",
    render="ddplaunch.render.kubernetes:render",
    connect="ddplaunch.backends.kubernetes.backend:connect",
    gate_timeout=600.0,  # nodes pull their images at different speeds
)

_OURS: Final = {target.name: target for target in (LOCAL, SLURM, KUBERNETES)}
"""By name, without a look at the entry points: `status` and `logs` shall not pay for that."""


def find(name: str) -> Target:
    """Return the target `name`. Raises UsageError when there is none, or when its package is broken."""
    if name in _OURS:
        return _OURS[name]
    for target in others():
        if target.name == name:
            return target
    raise UsageError(f"there is no target {name!r}", hint=f"one of {', '.join(names())}")


def names() -> list[str]:
    """Return the names of all targets: ours in the order in which they are offered, then the others."""
    return [*_OURS, *(target.name for target in others())]


def others() -> list[Target]:
    """Return the targets of other packages. Raises UsageError when one cannot be loaded."""
    from importlib.metadata import entry_points  # a tenth of what `--help` takes

    found = []
    for point in sorted(entry_points(group=GROUP)):
        if point.name in _OURS:
            continue
        try:
            target = point.load()
        except Exception as error:  # whatever a stranger's package may raise
            raise _broken(point.name, point.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(target, Target) or target.name != point.name:
            raise _broken(point.name, point.value, "it is not a ddplaunch.targets.Target of that name")
        found.append(target)
    return found


def _broken(name: str, value: str, why: str) -> UsageError:
    return UsageError(
        f"the target {name!r} cannot be used: {value}: {why}",
        hint="reinstall the Python package that offers it, or uninstall it",
    )
