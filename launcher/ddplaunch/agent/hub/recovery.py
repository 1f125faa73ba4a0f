"""Reads what a killed hub has left: for the hub that replaces it or, if none does, to end the job.

The gate begins again, because all nodes check in again. A job that has passed the gate, or whose end was
already decided, goes on: supervisors report what their ranks did meanwhile when they join again. If no hub
comes back, the nodes' own files together give one bundle and one verdict.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import time
from collections import deque
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import (
    REGROUP,
    Bundle,
    Event,
    Files,
    JobPlan,
    JobStatus,
    Phase,
    Standing,
    bundle_file,
    codec,
)
from ddplaunch.agent.diagnosis.run.decide import judge
from ddplaunch.agent.hub.evidence import job_evidence
from ddplaunch.agent.hub.job_record import KEPT_EVENTS, JobRecord
from ddplaunch.agent.hub.membership import LEFT_OUT


class Left(NamedTuple):
    """What the last hub of an attempt left in its files."""

    status: JobStatus
    bundle: Bundle
    events: list[Event]


def count_regroups(plan: JobPlan, folder: str, attempt: int) -> int:
    """Return how often newcomers have been let in so far, according to the files of an earlier hub."""
    before = read_status(folder)
    if before is None or before.job != plan.job or not plan.newcomers:
        return 0
    return max(0, before.attempt - attempt) + (before.exit_code == REGROUP)


def restore_members(record: JobRecord, before: Optional[JobStatus]) -> None:
    """After a regroup, await the nodes of the attempt before and the newcomers at its gate."""
    if before is None or not record.regroups:
        return
    out = _left_out(before)
    record.members -= out
    for node in out:
        record.update_node(node, phase=Phase.ENDED, detail=LEFT_OUT, standing=Standing.LEFT_OUT)
    record.newcomers |= _waiting(before)


def _left_out(status: JobStatus) -> set[int]:
    return {each.node for each in status.nodes if each.phase == Phase.ENDED and each.exit_code is None}


def _waiting(status: JobStatus) -> set[int]:
    return {each.node for each in status.nodes if each.standing == Standing.NEWCOMER}


def read_status(folder: str) -> Optional[JobStatus]:
    """Return the last status of an earlier hub, whatever its attempt; None if there is none."""
    try:
        return codec.read(JobStatus, os.path.join(folder, Files.STATUS))
    except (OSError, codec.ContractError):
        return None


def read_left(plan: JobPlan, folder: str, attempt: int) -> Optional[Left]:
    """Return the files of an earlier hub of this attempt; None if the new hub begins at the gate."""
    last = read_status(folder)
    try:
        bundle = bundle_file.read(os.path.join(folder, Files.BUNDLE))
    except (OSError, codec.ContractError):
        return None
    wanted = (plan.job, attempt)
    if last is None or (last.job, last.attempt) != wanted or (bundle.job, bundle.attempt) != wanted:
        return None
    if last.phase in (Phase.STARTING, Phase.GATE) and last.decided is None:
        return None
    return Left(last, bundle, _events(os.path.join(folder, Files.EVENTS), last.started) or bundle.events)


def restore(record: JobRecord, state: Left) -> None:
    """Fill the record of a new hub."""
    status, bundle = state.status, state.bundle
    record.started, record.phase, record.since = status.started, status.phase, status.since
    record.nodes.update({node.node: node for node in status.nodes if node.node in record.nodes})
    record.finished = {n: node.exit_code for n, node in record.nodes.items() if node.exit_code is not None}
    record.members -= _left_out(status) | _waiting(status)
    record.gate_passed, record.decided = status.gate_passed, status.decided
    record.exit_code = status.exit_code
    record.launch_attempt, record.failed_attempts = status.launch_attempt, bundle.failed_attempts
    record.check_ins = {each.node: each for each in bundle.check_ins}
    record.mesh, record.passed, record.links = bundle.mesh, bundle.passed, bundle.links
    record.agreed = bundle.agreed
    record.evidence = bundle.evidence
    # A notice is given again if it still holds.
    is_final = status.decided is not None or status.exit_code is not None
    record.verdicts = status.verdicts if is_final else []
    record.remember(state.events)


def _events(path: str, since: float) -> list[Event]:
    try:
        with open(path, encoding="utf-8") as file:
            last = deque(file, maxlen=KEPT_EVENTS)
    except (OSError, ValueError):
        return []
    events = []
    for line in last:
        try:
            event = codec.load(Event, json.loads(line))
        except ValueError:  # the last line may be cut off
            continue
        if event.at >= since:
            events.append(event)
    return events


def conclude(plan: JobPlan, folder: str, code: int) -> int:
    """Write the status and the bundle of the end, with the nodes' `code`. Returns the job's exit code."""
    try:
        status: Optional[JobStatus] = codec.read(JobStatus, os.path.join(folder, Files.STATUS))
    except (OSError, codec.ContractError):
        status = None
    if status and status.phase == Phase.ENDED and status.exit_code is not None:
        return status.exit_code  # the hub was killed after its last write
    bundle = gather_bundle(plan, folder)
    with contextlib.suppress(OSError):  # on a full disk the exit code is all that is left
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


def gather_bundle(plan: JobPlan, folder: str) -> Optional[Bundle]:
    """Judge the evidence of all nodes together, as the hub would; None if no node has left any.

    If a node's evidence is missing, the result has a node's own verdict, which blames no rank for something
    that other nodes might explain. The rest of the bundle is what the last hub wrote.
    """
    paths = [os.path.join(Files.NODE.format(node=node), Files.OWN) for node in range(plan.nodes)]
    bundles = _without_victims([each for each in (_read(folder, path) for path in paths) if each is not None])
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


def _without_victims(bundles: list[Bundle]) -> list[Bundle]:
    """Drop the bundles of nodes whose ranks failed only because another node ended its own ranks as hung."""
    hung = [each.evidence.at for each in bundles if each.evidence and each.evidence.why == "deadline"]
    return [each for each in bundles if _failed_at(each) <= min(hung, default=math.inf)]


def _failed_at(bundle: Bundle) -> float:
    """Return when a node's first rank, or its launch command, ended badly; 0 if none did."""
    nodes = bundle.evidence.evidence if bundle.evidence else []
    ends = [end for node in nodes for end in (node.launch_exit, *(rank.exit for rank in node.ranks))]
    return min((end.at for end in ends if end and not end.by_us and (end.code or end.signal)), default=0.0)


def _read(folder: str, name: str) -> Optional[Bundle]:
    try:
        return bundle_file.read(os.path.join(folder, name))
    except (OSError, codec.ContractError):
        return None
