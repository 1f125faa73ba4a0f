"""Lists the pictures that the evidence of a diagnosis carries, the most telling first."""

from __future__ import annotations

from ddplaunch.report.pictures import calls, lanes, reachability, steps, waits
from ddplaunch.report.pictures.picture import Picture
from ddplaunch.report.scene import Scene


def pictures(scene: Scene) -> list[Picture]:
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
