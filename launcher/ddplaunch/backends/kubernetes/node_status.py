"""Works out the status of every node of a job: its phase, why it is missing, how its agent ended. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, JobStatus, NodeStatus, Phase, PhaseName, Verdict, codec
from ddplaunch.agent.text.quantities import some
from ddplaunch.agent.text.saying import Subject, Text, say, spelled
from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import objects, pods
from ddplaunch.backends.kubernetes.objects import GATE, HUB, TRAINER, Json
from ddplaunch.backends.kubernetes.pods import PodProblem


class TerminationMessage(NamedTuple):
    """Termination message of an agent, or the combined one of a job's agents."""

    exit_code: int | None
    verdicts: list[Verdict]


def parse_message(message: str) -> TerminationMessage | None:
    """Return the agent's termination message; None where the container ended before it wrote one."""
    try:
        body = files.parse(message)
        verdicts = codec.load(list[Verdict], body.get("verdicts", []))
        return TerminationMessage(codec.load(int, body["exit_code"]), verdicts)
    except (ValueError, KeyError, AttributeError, codec.ContractError):
        return None


def has_passed(pod: Json) -> bool:
    """Whether the node's gate has let it pass."""
    ended = objects.state(pod, GATE, "terminated")
    return ended is not None and not ended.get("exitCode") and not is_left_out(pod)


def is_left_out(pod: Json) -> bool:
    """Whether the node did not pass its gate, and its pod fails no Job by that: an elastic one needs it not.

    The gate's container ended with 0 then, and left the code of its verdict in its message.
    """
    ended = objects.state(pod, GATE, "terminated")
    words = parse_message(str(ended.get("message") or "")) if ended and not ended.get("exitCode") else None
    return words is not None and words.exit_code != Exit.OK


_NAMED = 3
"""Pods that a sentence names."""


class Node(NamedTuple):
    """A node of a job. `pod` "": it has none. `since`: seconds since the epoch."""

    number: int
    pod: str
    machine: str
    phase: PhaseName
    since: float
    does: str  # what its pod does before its agent runs
    exit_code: int | None = None
    problem: PodProblem | None = None


class Group(NamedTuple):
    """Nodes that have the same problem."""

    nodes: list[int]
    where: str  # "node 2 (pod digits-2-x7k on worker2)"
    problem: PodProblem
    is_placed: bool = (
        True  # a pod of theirs has a machine; of one that is gone events may have the name alone
    )

    @property
    def sentence(self) -> str:
        """Return the sentence on the group, for people."""
        return spelled(self.text)

    @property
    def text(self) -> Text:
        """Return what is said of the group; its pods take the place of the subject of an agent's sentence."""
        own = self.problem.verdict
        if own is None:
            return say(f"{self.where}: {self.problem.text}")
        if not (own.text and isinstance(own.text[0], Subject)):
            return say(f"{self.where}: ", own.text)
        return say(self.where, own.text[1:]) if self.is_placed else own.text


def nodes(job: Json, found: Sequence[Json], events: Sequence[Json]) -> list[Node]:
    """Return all nodes of the job, whose pods are `found`. `events`: warnings about it and its pods."""
    by_number = {objects.node(pod): pod for pod in found}
    absent = pods.failed_create(events)
    made = [
        _node(number, by_number[number], events)
        if number in by_number
        else _without_pod(job, number, events, absent)
        for number in range(int(objects.spec(job).get("completions") or 0))
    ]
    if not (objects.is_elastic(job) and any(map(has_passed, found))):
        return made
    return [each._replace(does=_WITHOUT, problem=None) if _is_missing(each) else each for each in made]


_WITHOUT = "the job goes on without it"


def _is_missing(node: Node) -> bool:
    """Whether a node of an elastic job that has started is none of those that it has started with.

    One without a pod may have had one.
    """
    never_came = node.problem is not None and node.problem.code == "node-missing"
    return node.phase == Phase.STARTING and (bool(node.pod) or never_came)


def _without_pod(job: Json, number: int, events: Sequence[Json], absent: PodProblem | None) -> Node:
    """Return a node without a pod. Its pod may have been deleted with the job; events stay for an hour."""
    prefix = f"{objects.name(job)}-{number}-"
    of_it = [
        each for each in events if str((each.get("involvedObject") or {}).get("name")).startswith(prefix)
    ]
    problem = pods.of_events(of_it) or absent
    pod = str(of_it[-1]["involvedObject"]["name"]) if of_it else ""
    return Node(number, pod, "", Phase.STARTING, objects.created(job), "without a pod yet", problem=problem)


def needs_events(count: int, found: Sequence[Json]) -> bool:
    """Whether a pod is missing, not started, terminating or failed: only events may show why."""
    return len(found) < count or any(
        objects.is_being_deleted(pod)
        or objects.status(pod).get("phase") == "Failed"
        or not _has_begun(pod)
        or is_silent(pod)
        for pod in found
    )


def is_silent(pod: Json) -> bool:
    """Whether its machine does not answer: only that makes a pod unready whose trainer runs."""
    return objects.status(pod).get("phase") == "Running" and not objects.condition(pod, "Ready")


def _has_begun(pod: Json) -> bool:
    return bool(objects.containers(pod).get(GATE, {}).get("state", {}).keys() & {"running", "terminated"})


def _node(number: int, pod: Json, events: Sequence[Json]) -> Node:
    uid = objects.uid(pod)
    mine = [each for each in events if (each.get("involvedObject") or {}).get("uid") == uid]
    phase, since, does = _phase(pod)
    left_out = is_left_out(pod)
    return Node(
        number,
        objects.name(pod),
        str(objects.spec(pod).get("nodeName") or ""),
        Phase.ENDED if left_out else phase,
        since,
        "it did not pass its gate" if left_out else does,
        None if left_out else exit_code(pod),
        pods.problem(pod, mine),
    )


def _phase(pod: Json) -> tuple[PhaseName, float, str]:
    """Return the pod's phase, since when, and what it does meanwhile."""
    created = objects.created(pod)
    if objects.status(pod).get("phase") in ("Succeeded", "Failed"):
        return Phase.ENDED, _finished(pod) or created, ""
    states = {name: status.get("state") or {} for name, status in objects.containers(pod).items()}
    # Only the hub knows how far the ranks are.
    runs: tuple[tuple[str, PhaseName], ...] = ((TRAINER, Phase.RUNNING), (GATE, Phase.GATE))
    for name, phase in runs:
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
        for status in objects.containers(pod).values()
        if (found := objects.at(((status.get("state") or {}).get("terminated") or {}).get("finishedAt")))
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
    """Return the nodes with a problem, those with the same one together."""
    grouped: dict[tuple[str, str], list[Node]] = {}
    for each in found:
        if each.problem is not None:
            grouped.setdefault((each.problem.code, each.problem.text), []).append(each)
    return [
        Group(
            [each.number for each in group],
            where(group),
            group[0].problem,
            any(each.machine for each in group),
        )
        for group in grouped.values()
        if group[0].problem is not None
    ]


def startup(nodes: Sequence[Node]) -> str:
    """Return what nodes do whose agent does not run yet: `node 0 (pod …): getting its image and volumes`."""
    doing: dict[str, list[Node]] = {}
    for each in nodes:
        doing.setdefault(each.does, []).append(each)
    return "; ".join(f"{where(group)}: {does}" for does, group in doing.items() if does)


def where(found: Sequence[Node]) -> str:
    """`node 2 (pod digits-2-x7k on worker2)`, `nodes 0-3 (pods digits-0-x7k, …)`."""
    numbers = [each.number for each in found]
    named = [f"{each.pod} on {each.machine}" if each.machine else each.pod for each in found if each.pod]
    shown = ", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else "")
    places = f" ({'pod' if len(named) == 1 else 'pods'} {shown})" if named else ""
    return f"{some('node', numbers)}{places}"


def left(found: Iterable[Node], pods: Iterable[Json]) -> str:
    """Return a text on the pods that still exist after the job's end; empty when there are none."""
    silent = {objects.node(pod) for pod in pods if is_silent(pod)}
    there = [each for each in found if each.pod and each.phase != Phase.ENDED]
    kinds = (
        ("cannot be deleted while the machine does not answer", [e for e in there if e.number in silent]),
        ("still ending", [e for e in there if e.number not in silent]),
    )
    return "; ".join(f"{where(group)}: {how}" for how, group in kinds if group)


def machines(found: Iterable[Json]) -> dict[int, str]:
    """Return by node the machine of its pod, where it has one."""
    placed = {objects.node(pod): str(objects.spec(pod).get("nodeName") or "") for pod in found}
    return {node: machine for node, machine in placed.items() if node is not None and machine}


def status(
    job: str, attempt: int, found: Sequence[Node], hub_status: JobStatus | None, now: float
) -> JobStatus:
    """Return the job's status, with each node by the hub if it knows more, else by its pod."""
    by_node = {each.node: each for each in hub_status.nodes} if hub_status is not None else {}
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
        by_hub = by_node.get(each.number)
        if by_hub is None or _later(by_pod, by_hub) or (by_hub.phase == Phase.STARTING):
            merged.append(by_pod)
        elif each.problem is not None:
            merged.append(dataclasses.replace(by_hub, detail=each.problem.text))
        else:
            merged.append(by_hub)
    if hub_status is not None:
        return dataclasses.replace(hub_status, nodes=merged)
    phases: list[PhaseName] = [each.phase for each in merged] or [Phase.STARTING]
    behind, ahead = min(phases, key=Phase.ORDER.index), max(phases, key=Phase.ORDER.index)
    phase = ahead if behind == Phase.STARTING and ahead in (Phase.STARTING, Phase.GATE) else behind
    since = min((each.since for each in merged if each.phase == phase), default=now)
    not_started = (
        [each.node for each in merged if each.phase == Phase.STARTING] if phase == Phase.GATE else []
    )
    started = min((each.since for each in merged), default=now)
    return JobStatus(job, attempt, phase, since, merged, started, now, not_started)


def with_end(status: JobStatus, end: JobStatus | None) -> JobStatus:
    """Return the status of a job that has ended, with what its hub's own `end` says of a checkpoint."""
    if end is None or end.exit_code != Exit.STOPPED:
        return status
    details = {each.node: each.detail for each in end.nodes if each.exit_code == Exit.STOPPED}
    nodes = [
        dataclasses.replace(
            each,
            detail=details.get(each.node, ""),
            exit_code=Exit.STOPPED if each.node in details else each.exit_code,
        )
        for each in status.nodes
    ]
    return dataclasses.replace(status, exit_code=end.exit_code, nodes=nodes)


def gate_passed(found: Iterable[Json]) -> bool:
    """Whether any trainer has started, which its gate allows only when all may start."""
    return any(
        objects.state(pod, TRAINER, how) is not None and not is_left_out(pod)
        for pod in found
        for how in ("running", "terminated")
    )


def _later(pod: NodeStatus, hub: NodeStatus) -> bool:
    """Whether `pod` has ended and `hub`, which may be out of date, does not show it."""
    return pod.phase == Phase.ENDED and hub.phase != Phase.ENDED


def event_time(event: Json) -> float:
    """Return when the event was observed last, in seconds since the epoch."""
    series = (event.get("series") or {}).get("lastObservedTime")
    times = (series, event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return next((at for text in times if (at := objects.at(text)) is not None), objects.created(event))
