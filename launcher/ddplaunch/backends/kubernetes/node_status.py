"""The status of every node of a job by its pod; which nodes are missing, and why. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import JobStatus, NodeStatus, Phase
from ddplaunch.backends.kubernetes import objects, pending, pods
from ddplaunch.backends.kubernetes.objects import GATE, HUB, TRAINER, Json
from ddplaunch.backends.kubernetes.pods import PodProblem

_NAMED = 3
"""Pods that a sentence names."""
_NODE = re.compile(r"node \d+(?: \([^)]*\))?")


class Node(NamedTuple):
    """One node of a job. `pod` "": it has none."""

    number: int
    pod: str
    machine: str
    phase: str
    since: float
    does: str  # what it does before it can speak for itself
    exit_code: int | None = None
    problem: PodProblem | None = None


class Group(NamedTuple):
    """Nodes that have the same problem."""

    nodes: list[int]
    where: str  # "node 2 (pod digits-2-x7k on worker2)"
    problem: PodProblem

    @property
    def sentence(self) -> str:
        """The sentence on the whole group. An agent's own names its node, and no pod and no machine."""
        named = _NODE.match(self.problem.text)
        if named and "(" not in self.where:
            return self.problem.text  # its pod is gone
        return f"{self.where}{self.problem.text[named.end() :] if named else f': {self.problem.text}'}"


def nodes(job: Json, found: Sequence[Json], events: Sequence[Json]) -> list[Node]:
    """Return all nodes of the job, whose pods are `found`. `events`: warnings about it and its pods."""
    by_number = {objects.node(pod): pod for pod in found}
    absent = pending.failed_create(events)
    return [
        _node(number, by_number[number], events)
        if number in by_number
        else _without_pod(job, number, events, absent)
        for number in range(int(objects.spec(job).get("completions") or 0))
    ]


def _without_pod(job: Json, number: int, events: Sequence[Json], absent: PodProblem | None) -> Node:
    """A pod that never ran is deleted when its job fails; what was said about it stays for an hour."""
    prefix = f"{objects.name(job)}-{number}-"
    of_it = [
        each for each in events if str((each.get("involvedObject") or {}).get("name")).startswith(prefix)
    ]
    problem = pods.of_events(of_it) or absent
    pod = str(of_it[-1]["involvedObject"]["name"]) if of_it else ""
    return Node(number, pod, "", Phase.STARTING, objects.created(job), "without a pod yet", problem=problem)


def needs_events(count: int, found: Sequence[Json]) -> bool:
    """Whether a pod is missing, has not begun, is leaving, or has failed: only events may say why."""
    return len(found) < count or any(
        objects.is_going(pod)
        or objects.status(pod).get("phase") == "Failed"
        or not _has_begun(pod)
        or is_silent(pod)
        for pod in found
    )


def is_silent(pod: Json) -> bool:
    """Whether its machine does not answer: nothing else takes readiness from a pod whose trainer runs."""
    return objects.status(pod).get("phase") == "Running" and not objects.condition(pod, "Ready")


def _has_begun(pod: Json) -> bool:
    return bool(objects.containers(pod).get(GATE, {}).get("state", {}).keys() & {"running", "terminated"})


def _node(number: int, pod: Json, events: Sequence[Json]) -> Node:
    uid = objects.uid(pod)
    mine = [each for each in events if (each.get("involvedObject") or {}).get("uid") == uid]
    phase, since, does = _place(pod)
    return Node(
        number,
        objects.name(pod),
        str(objects.spec(pod).get("nodeName") or ""),
        phase,
        since,
        does,
        exit_code(pod),
        pods.problem(pod, mine),
    )


def _place(pod: Json) -> tuple[str, float, str]:
    """Phase, since when, and what it does meanwhile."""
    created = objects.created(pod)
    if objects.status(pod).get("phase") in ("Succeeded", "Failed"):
        return Phase.ENDED, _finished(pod) or created, ""
    states = {name: told.get("state") or {} for name, told in objects.containers(pod).items()}
    # How far its ranks are, only the hub knows.
    for name, phase in ((TRAINER, Phase.RUNNING), (GATE, Phase.GATE)):
        running = states.get(name, {}).get("running")
        if running:
            return phase, objects.at(running.get("startedAt")) or created, ""
    gate, trainer = (states.get(name, {}).get("terminated") for name in (GATE, TRAINER))
    ended = trainer or (gate if gate and gate.get("exitCode") else None)
    if ended:
        return Phase.ENDED, objects.at(ended.get("finishedAt")) or created, ""
    if gate:
        return Phase.GATE, created, "starting the trainer"
    machine = objects.spec(pod).get("nodeName")
    if not machine:
        return Phase.STARTING, created, "waiting for a machine"
    if states.get(HUB, {}).get("running"):
        return Phase.STARTING, created, "starting the gate"
    return Phase.STARTING, created, "getting its image and volumes"


def _finished(pod: Json) -> float | None:
    times = [
        found
        for told in objects.containers(pod).values()
        if (found := objects.at(((told.get("state") or {}).get("terminated") or {}).get("finishedAt")))
    ]
    return max(times, default=None)


def exit_code(pod: Json) -> int | None:
    """Return the exit code of the trainer, or of a failed gate; None while neither has ended."""
    for name in (TRAINER, GATE):
        ended = objects.state(pod, name, "terminated")
        if ended and (name == TRAINER or ended.get("exitCode")):
            return int(ended.get("exitCode") or 0)
    return None


def troubled(found: Iterable[Node]) -> list[Group]:
    """The nodes in problem, those with the same problem together."""
    grouped: dict[tuple[str, str], list[Node]] = {}
    for each in found:
        if each.problem is not None:
            grouped.setdefault((each.problem.code, each.problem.text), []).append(each)
    return [
        Group([each.number for each in group], where(group), group[0].problem)
        for group in grouped.values()
        if group[0].problem is not None
    ]


def where(found: Sequence[Node]) -> str:
    """`node 2 (pod digits-2-x7k on worker2)`, `nodes 0-3 (pods digits-0-x7k, …)`."""
    numbers = [each.number for each in found]
    named = [f"{each.pod} on {each.machine}" if each.machine else each.pod for each in found if each.pod]
    shown = ", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else "")
    places = f" ({'pod' if len(named) == 1 else 'pods'} {shown})" if named else ""
    return f"{some(numbers)}{places}"


def left(found: Iterable[Node], pods: Iterable[Json]) -> str:
    """The pods that have not ended although the job has; empty when all have."""
    silent = {objects.node(pod) for pod in pods if is_silent(pod)}
    there = [each for each in found if each.pod and each.phase != Phase.ENDED]
    kinds = (
        ("cannot be deleted while the machine does not answer", [e for e in there if e.number in silent]),
        ("not deleted yet", [e for e in there if e.number not in silent]),
    )
    return "; ".join(f"{where(group)}: {how}" for how, group in kinds if group)


def machines(found: Iterable[Json]) -> dict[int, str]:
    """Return by node the machine of its pod, where it has one."""
    placed = {objects.node(pod): str(objects.spec(pod).get("nodeName") or "") for pod in found}
    return {node: machine for node, machine in placed.items() if node is not None and machine}


def some(numbers: Sequence[int]) -> str:
    """`node 5`, `nodes 0-2, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join("-".join(map(str, run)) for run in runs)


def status(job: str, attempt: int, found: Sequence[Node], told: JobStatus | None, now: float) -> JobStatus:
    """Every node's place: by the hub where it knows more, by its pod where the hub knows nothing."""
    own = {each.node: each for each in told.nodes} if told is not None else {}
    merged = []
    for each in found:
        by_pod = NodeStatus(
            each.number,
            each.pod,
            each.phase,
            each.since,
            each.problem.text if each.problem else each.does,
            each.exit_code,
        )
        by_hub = own.get(each.number)
        if by_hub is None or _later(by_pod, by_hub) or (by_hub.phase == Phase.STARTING):
            merged.append(by_pod)
        elif each.problem is not None:
            merged.append(dataclasses.replace(by_hub, detail=each.problem.text))
        else:
            merged.append(by_hub)
    if told is not None:
        return dataclasses.replace(told, nodes=merged)
    behind = min((each.phase for each in merged), key=Phase.ORDER.index, default=Phase.STARTING)
    ahead = max((each.phase for each in merged), key=Phase.ORDER.index, default=Phase.STARTING)
    phase = ahead if behind == Phase.STARTING and ahead in (Phase.STARTING, Phase.GATE) else behind
    since = min((each.since for each in merged if each.phase == phase), default=now)
    pending = [each.node for each in merged if each.phase == Phase.STARTING] if phase == Phase.GATE else []
    started = min((each.since for each in merged), default=now)
    return JobStatus(job, attempt, phase, since, merged, started, now, pending)


def gate_passed(found: Iterable[Json]) -> bool:
    """Whether any trainer has started: its pod's gate lets it, and only when all may start."""
    return any(
        objects.state(pod, TRAINER, how) is not None for pod in found for how in ("running", "terminated")
    )


def _later(pod: NodeStatus, hub: NodeStatus) -> bool:
    """The hub's word is a moment old, and may be its last."""
    return pod.phase == Phase.ENDED and hub.phase != Phase.ENDED


def told_at(event: Json) -> float:
    """Return the time at which it was said last."""
    series = (event.get("series") or {}).get("lastObservedTime")
    times = (series, event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((at for text in times if (at := objects.at(text)) is not None), objects.created(event))
