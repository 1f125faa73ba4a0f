"""Reads the files of a hub that was killed, for the hub that replaces it.

The gate begins again, for all nodes check in again. A job whose gate has passed, or whose end was decided,
goes on; supervisors report what their ranks did meanwhile when they join again.
"""

from __future__ import annotations

import json
import os
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
    bundle_file,
    codec,
)
from ddplaunch.agent.hub.elastic import LEFT_OUT, WAITS
from ddplaunch.agent.hub.job_record import KEPT_EVENTS, JobRecord


class Left(NamedTuple):
    """The files of one attempt."""

    status: JobStatus
    bundle: Bundle
    events: list[Event]


def regroups(plan: JobPlan, folder: str, attempt: int) -> int:
    """Return how often newcomers were let in so far, by the files of an earlier hub."""
    before = last_status(folder)
    if before is None or before.job != plan.job or not plan.newcomers:
        return 0
    return max(0, before.attempt - attempt) + (before.exit_code == REGROUP)


def gather(record: JobRecord, before: Optional[JobStatus]) -> None:
    """Set who is awaited after a regroup: those of the attempt before, and the newcomers at its gate."""
    if before is None or not record.regroups:
        return
    out = _left_out(before)
    record.members -= out
    for node in out:
        record.node(node, phase=Phase.ENDED, detail=LEFT_OUT)
    record.newcomers |= _waiting(before)


def _left_out(status: JobStatus) -> set[int]:
    return {each.node for each in status.nodes if each.phase == Phase.ENDED and each.exit_code is None}


def _waiting(status: JobStatus) -> set[int]:
    return {each.node for each in status.nodes if each.detail == WAITS}


def last_status(folder: str) -> Optional[JobStatus]:
    """Return the last status of an earlier hub, of whatever attempt; None where there is none."""
    try:
        return codec.read(JobStatus, os.path.join(folder, Files.STATUS))
    except (OSError, codec.ContractError):
        return None


def left(plan: JobPlan, folder: str, attempt: int) -> Optional[Left]:
    """Return the files of an earlier hub of this attempt; None where the new one begins at the gate."""
    last = last_status(folder)
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
    record.members -= _left_out(status) | _waiting(status)
    record.gate_passed, record.decided = status.gate_passed, status.decided
    record.exit_code = status.exit_code
    record.launch_attempt, record.failed_attempts = status.launch_attempt, bundle.failed_attempts
    record.check_ins = {each.node: each for each in bundle.check_ins}
    record.mesh, record.passed, record.links = bundle.mesh, bundle.passed, bundle.links
    record.agreed = bundle.agreed
    record.evidence = bundle.evidence
    # A notice is given again where it still holds.
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
        except ValueError:  # a ContractError is one; the last line may be cut
            continue
        if event.at >= since:
            events.append(event)
    return events
