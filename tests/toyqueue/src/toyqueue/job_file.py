"""From the job file to what the queue takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from ddplaunch.plan.plan import Plan
from ddplaunch.plan.target import TargetPlan, problem
from ddplaunch.render import Rendered, RenderedFile, local
from ddplaunch.spec.fields import Section, Word
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import Problem


class Toyqueue(Section):
    """What only the toy queue knows."""

    lane: Word = Field(default="slow", description="Lane of the queue.")


@dataclass(frozen=True)
class Settings:
    """What the renderer reads."""

    lane: str


def _section(spec: JobSpec) -> Any:
    return spec.toyqueue  # type: ignore[attr-defined]


def problems(spec: JobSpec) -> list[Problem]:
    """Return what the queue refuses: it has two lanes."""
    lane = _section(spec).lane
    if lane in ("slow", "fast"):
        return []
    return [problem(spec, "toyqueue.lane", lane, "slow or fast", "the queue has no other lanes")]


def make(spec: JobSpec) -> TargetPlan:
    """Return the lane, and that all nodes are this machine."""
    names = ("127.0.0.1",) * spec.nodes
    return TargetPlan(Settings(_section(spec).lane), names=names, master_addr=names[0])


def render(plan: Plan, *, gate_only: bool) -> Rendered:
    """Return the files of a job on this machine, and the lane in a file of its own."""
    made = local.render(plan, gate_only=gate_only)
    lane = RenderedFile(f"{plan.settings(Settings).lane}\n".encode())
    return replace(made, target="toyqueue", files={**made.files, "lane": lane})
