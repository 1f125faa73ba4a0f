"""Pictures of a diagnosis: evidence in, plain SVG out.

Each module draws one picture, and is pure. A picture shows what is recorded and nothing else. If its evidence
is missing, there is no picture. The job's texts get into a drawing only through `svg`, which escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.report import Diagnosis
from ddplaunch.report.pictures import calls, lanes, reachability, steps, waits
from ddplaunch.report.pictures.calls import Parting
from ddplaunch.report.pictures.svg import Picture


@dataclass(frozen=True)
class Scene:
    """A diagnosis with its ranks, its first verdict, and the call at which the ranks part."""

    diagnosis: Diagnosis

    @cached_property
    def view(self) -> JobView | None:
        """Return the evidence as the rules see it; None: no evidence was taken."""
        evidence = self.diagnosis.evidence
        return None if evidence is None else JobView(evidence)

    @cached_property
    def verdict(self) -> Verdict | None:
        return self.diagnosis.verdicts[0] if self.diagnosis.verdicts else None

    @cached_property
    def parting(self) -> Parting | None:
        return calls.find(self.view, self.verdict) if self.view and self.verdict else None


def make_pictures(scene: Scene) -> list[Picture]:
    """Return the pictures; those of which no evidence is there are left out.

    Where the job did not get through the gate, the map of its paths comes first.
    """
    bundle, view, verdict = scene.diagnosis.bundle, scene.view, scene.verdict
    if bundle is None:
        return []
    paths = reachability.picture(bundle)
    of_ranks = [
        lanes.picture(bundle, view, verdict),
        waits.picture(view, verdict),
        calls.picture(scene.parting),
        steps.picture(view, verdict),
    ]
    at_gate = verdict is not None and verdict.where == "gate"
    order = [paths, *of_ranks] if at_gate else [*of_ranks, paths]
    return [picture for picture in order if picture is not None]
