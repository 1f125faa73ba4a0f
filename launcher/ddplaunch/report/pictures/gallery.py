"""Lists the pictures that the evidence of a diagnosis carries, the most telling first."""

from __future__ import annotations

from ddplaunch.agent.diagnosis.run.job_view import JobView
from ddplaunch.report.diagnosis import Diagnosis
from ddplaunch.report.pictures import calls, lanes, reachability, steps, waits
from ddplaunch.report.pictures.picture import Picture


def pictures(diagnosis: Diagnosis) -> list[Picture]:
    """Return the pictures; those of which no evidence is there are left out.

    Where the job did not get through the gate, the map of its paths comes first.
    """
    bundle, evidence = diagnosis.bundle, diagnosis.evidence
    if bundle is None:
        return []
    view = JobView(evidence) if evidence is not None else None
    verdict = diagnosis.verdicts[0] if diagnosis.verdicts else None
    paths = reachability.picture(bundle)
    of_ranks = [
        lanes.picture(bundle, view, verdict),
        waits.picture(view, verdict),
        calls.picture(view, verdict),
        steps.picture(view, verdict),
    ]
    at_gate = verdict is not None and verdict.where == "gate"
    order = [paths, *of_ranks] if at_gate else [*of_ranks, paths]
    return [picture for picture in order if picture is not None]
