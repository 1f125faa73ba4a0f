"""The end of a job whose hub does not come back: one bundle from all nodes' own files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from typing import Optional

from ddplaunch.agent.contract import Bundle, Files, JobPlan, JobStatus, Phase, bundle_file, codec
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.hub.evidence_rounds import job_evidence


def conclude(plan: JobPlan, folder: str, code: int) -> int:
    """Write the status and the bundle of the end, by `code` of the nodes. Returns the job's exit code."""
    try:
        status: Optional[JobStatus] = codec.read(JobStatus, os.path.join(folder, Files.STATUS))
    except (OSError, codec.ContractError):
        status = None
    if status and status.phase == Phase.ENDED and status.exit_code is not None:
        return status.exit_code  # the hub was killed after its last write
    bundle = gather(plan, folder)
    with contextlib.suppress(OSError):  # on a full disk the exit code is all there is
        if bundle:
            bundle_file.write(os.path.join(folder, Files.BUNDLE), dataclasses.replace(bundle, exit_code=code))
    with contextlib.suppress(OSError):
        if status:
            now, verdicts = time.time(), bundle.verdicts if bundle else status.verdicts
            status = dataclasses.replace(
                status, phase=Phase.ENDED, exit_code=code, since=now, updated=now, verdicts=verdicts
            )
            codec.write(os.path.join(folder, Files.STATUS), status)
    return code


def gather(plan: JobPlan, folder: str) -> Optional[Bundle]:
    """Judge the evidence of all nodes together, as the hub would; None where no node has left any.

    Where a node's evidence is missing, the result has a node's own verdict, which blames no rank for what
    other nodes might explain. The rest of the bundle is what the last hub wrote.
    """
    paths = [os.path.join(Files.NODE.format(node=node), Files.OWN) for node in range(plan.nodes)]
    bundles = _first([each for each in (_read(folder, path) for path in paths) if each is not None])
    evidence = {one.node: one for each in bundles if each.evidence for one in each.evidence.evidence}
    if not evidence:
        return None
    why = "death" if any(each.launch_exit for each in evidence.values()) else "deadline"
    silent = [node for node in range(plan.nodes) if node not in evidence]
    whole = job_evidence(plan, why, time.time(), evidence, silent, {}, {}, [])
    certain = [each.verdicts for each in bundles if any(one.code != "unknown" for one in each.verdicts)]
    verdicts = judge(whole) if not silent else (certain or [bundles[0].verdicts])[0]
    begun = _read(folder, Files.BUNDLE) or bundles[0]
    return dataclasses.replace(begun, evidence=whole, verdicts=verdicts, written=time.time())


def _first(bundles: list[Bundle]) -> list[Bundle]:
    """Return the bundles without nodes whose ranks failed because another node had ended its own as hung."""
    hung = [each.evidence.at for each in bundles if each.evidence and each.evidence.why == "deadline"]
    return [each for each in bundles if _failed_at(each) <= min(hung, default=math.inf)]


def _failed_at(bundle: Bundle) -> float:
    """Return when the first rank of a node ended badly, or its launch command; 0 where none did."""
    nodes = bundle.evidence.evidence if bundle.evidence else []
    ends = [end for node in nodes for end in (node.launch_exit, *(rank.exit for rank in node.ranks))]
    return min((end.at for end in ends if end and not end.by_us and (end.code or end.signal)), default=0.0)


def _read(folder: str, name: str) -> Optional[Bundle]:
    try:
        return bundle_file.read(os.path.join(folder, name))
    except (OSError, codec.ContractError):
        return None
