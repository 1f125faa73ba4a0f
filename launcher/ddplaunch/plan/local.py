"""Plans a run on this machine: all nodes are this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddplaunch.plan import target
from ddplaunch.plan.source import LOCAL_LIMIT
from ddplaunch.plan.target import TargetPlan

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec
    from ddplaunch.spec.problems import Problem

ADDRESS = "127.0.0.1"


def make(spec: JobSpec) -> TargetPlan:
    """Return what `spec` comes to here."""
    return TargetPlan(
        names=(ADDRESS,) * spec.nodes,
        master_addr=ADDRESS,
        hub_port=spec.gate.port,
        source_limit=LOCAL_LIMIT,
        sees_folders=True,
        time_limit=spec.local.time,
    )


def problems(spec: JobSpec) -> list[Problem]:
    """Return all that cannot be had here: it mounts nothing, has no Secrets, and no choice of GPUs."""
    hint = "jobs on this machine see its folders directly; put the paths into `command` or `env`"
    found = [target.no_volume(spec, index, "local", hint) for index in range(len(spec.volumes))]
    if spec.resources.gpu_type:
        hint = "jobs on this machine use its own GPUs: leave this key out"
        wanted = "no type for --to local"
        found.append(target.problem(spec, "resources.gpu_type", spec.resources.gpu_type, wanted, hint))
    found += target.no_outputs(spec, "local")
    return found + target.no_secrets(spec, "local") + target.no_events(spec, "local")
