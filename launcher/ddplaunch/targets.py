"""The schedulers to which a job can be sent: one `Target` for each, ours and those of other packages.

A package adds one through an entry point in the group `ddplaunch.targets`: the entry point's name is the
value of `--to`, and its object is a `Target`. pyproject.toml lists ours in the same way. A target names its
parts as `module:attribute`, and each is imported when it is first needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from ddplaunch.agent.job_file.rules import POD_GATE_TIMEOUT
from ddplaunch.agent.plan import GatePlan
from ddplaunch.errors import UsageError

GROUP: Final = "ddplaunch.targets"


@dataclass(frozen=True)
class Target:
    """One scheduler, and its part in each layer. Raises ValueError for a name with which no handle can
    begin.
    """

    name: str
    """The value of `--to`, the beginning of every handle, and the key of the section in the job file."""
    section: str
    """A `spec.fields.Section` whose keys all have defaults: this target's settings in a job file."""
    problems: str
    """`(JobSpec) -> list[Problem]`: what this target cannot do of a valid job file."""
    plan: str
    """`(JobSpec) -> plan.target.TargetPlan`, for a job file without such problems."""
    render: str
    """`(Plan, *, gate_only: bool) -> Rendered`. With `gate_only` the job ends after its gate."""
    connect: str
    """`() -> Backend`."""
    check_up: str = ""
    """`(JobSpec) -> JobSpec`: what `doctor` runs, made from the job file, or else from a job with the
    profile's defaults (its `job_file` is ""). May raise UsageError. "": it runs that job unchanged and keeps
    it under the name `doctor`."""
    after: str = ""
    """`(Sequence[JobSpec], Sequence[Handle]) -> list[JobSpec]`: jobs that start when those have succeeded.
    May raise any DdplaunchError. "": no job there waits for another, and `submit --after` is refused."""
    without_order: str = ""
    """The reason why no job there waits for another, for people."""
    reach: str = ""
    """`(JobSpec) -> str`: where jobs go from this machine, for people, without a query; there "" is that they
    cannot be sent. A target without it is never meant unless it is named."""
    gate_timeout: float = GatePlan.timeout
    """Seconds of wall clock for the gate, where the job file does not set them."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+", self.name):
            raise ValueError(f"{self.name!r} cannot name a target: wanted lower-case letters")

    def load(self, part: str) -> Any:
        """Return the object that `part`, one of the fields above, names. Raises what its import raises."""
        module, _, attribute = part.partition(":")
        return getattr(import_module(module), attribute)


LOCAL: Final = Target(
    "local",
    section="ddplaunch.spec.targets:Local",
    problems="ddplaunch.plan.local:problems",
    plan="ddplaunch.plan.local:make",
    render="ddplaunch.render.local:render",
    connect="ddplaunch.backends.local.backend:connect",
    without_order="a job on this machine starts at once: there is no queue to wait in",
)
SLURM: Final = Target(
    "slurm",
    section="ddplaunch.spec.targets:Slurm",
    problems="ddplaunch.plan.slurm:problems",
    plan="ddplaunch.plan.slurm:make",
    render="ddplaunch.render.slurm:render",
    connect="ddplaunch.backends.slurm.backend:connect",
    after="ddplaunch.backends.slurm.backend:jobs_after",
    reach="ddplaunch.backends.slurm:destination",
)
KUBERNETES: Final = Target(
    "kubernetes",
    section="ddplaunch.spec.targets:Kubernetes",
    problems="ddplaunch.plan.kubernetes:problems",
    plan="ddplaunch.plan.kubernetes:make",
    render="ddplaunch.render.kubernetes:render",
    connect="ddplaunch.backends.kubernetes.backend:connect",
    check_up="ddplaunch.backends.kubernetes.submission:check_up",
    reach="ddplaunch.backends.kubernetes:destination",
    without_order="a Kubernetes Job cannot wait for another, with or without Kueue (a JobSet's dependsOn "
    "orders the parts of one job)",
    gate_timeout=POD_GATE_TIMEOUT,
)

_OURS_POINT: Final = "ddplaunch.targets:SLURM"
"""An entry point of ours, by which its text is known."""
_OURS: Final = {target.name: target for target in (LOCAL, SLURM, KUBERNETES)}
"""By name: `status` and `logs` find them without spending the time to read entry points."""


def find(name: str) -> Target:
    """Return the target `name`. Raises UsageError if there is none, or if its package is broken."""
    if name in _OURS:
        return _OURS[name]
    for target in others():
        if target.name == name:
            return target
    raise UsageError(f"there is no target {name!r}", hint=f"one of {', '.join(names())}")


def names() -> list[str]:
    """Return the names of all targets, ours first. Raises UsageError if another package's is broken."""
    return [*_OURS, *(target.name for target in others())]


def others() -> list[Target]:
    """Return the targets of other packages. Raises UsageError if one cannot be loaded."""
    from importlib.metadata import distributions, entry_points  # importing it takes a tenth of `--help`

    # Parsing all entry points takes three times as long as reading them, and hardly any of them is a target.
    texts = (each.read_text("entry_points.txt") or "" for each in distributions())
    if not any(GROUP in text and _OURS_POINT not in text for text in texts):
        return []
    found = []
    for point in sorted(entry_points(group=GROUP)):
        if point.name in _OURS:
            continue
        try:
            target = point.load()
        except Exception as error:  # another package may raise anything
            raise _broken(point.name, point.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(target, Target) or target.name != point.name:
            raise _broken(point.name, point.value, "it is not a ddplaunch.targets.Target with that name")
        found.append(target)
    return found


def _broken(name: str, value: str, why: str) -> UsageError:
    return UsageError(
        f"the target {name!r} cannot be used: {value}: {why}",
        hint="reinstall or uninstall the Python package that provides it",
    )
