"""Looks at the ranks of a job that ddplaunch did not start: by a command in each of its pods.

The agent travels through the command's standard input into memory, and leaves nothing in the pod.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ddplaunch.agent.contract import Bundle, NodeEvidence
from ddplaunch.agent.text.ranges import listing
from ddplaunch.backends import outside
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.kubernetes import objects, outside_pods, pod_answers
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.outside_pods import Target
from ddplaunch.backends.kubernetes.pod_answers import Answer
from ddplaunch.errors import ClusterError, NotFoundError, UsageError

_NAMED: Final = 4
"""Pods that a text names; more of them share a number."""


def diagnose(path: str, debug_image: str = "") -> tuple[Job, Bundle | None]:
    """Return the job that the text after kubernetes:// names, and the evidence of its ranks.

    `debug_image`: look from a container of this image, which is added to each pod; "": from that of the
    ranks. The bundle is None where none of its pods runs. Raises NotFoundError, UsageError, ClusterError.
    """
    target = outside_pods.parse(path)
    api = Api()
    try:
        pods = outside_pods.find(api, target)
        job = Job(
            Handle("kubernetes", target.path),
            State.RUNNING,
            min(map(objects.created, pods)),
            target.name or target.selector,
        )
        made = collect(api, target, pods, debug_image)
    finally:
        api.close()
    if made is None:
        return _not_running(job, pods), None
    return outside.explained(job, made, in_debug_container=bool(debug_image)), made


def of_owner(api: Api, namespace: str, owner: Json) -> Bundle | None:
    """Return the evidence of a Job or a JobSet that ddplaunch did not start; None where no pod of it runs.

    Raises UsageError, ClusterError.
    """
    kind = next(each for each in outside_pods.KINDS if each.word == owner.get("kind"))
    target = Target(namespace, kind, objects.name(owner))
    try:
        return collect(api, target, outside_pods.find(api, target))
    except NotFoundError:
        return None


def collect(api: Api, target: Target, pods: Sequence[Json], debug_image: str = "") -> Bundle | None:
    """Return the evidence of the ranks in these pods; None where none of them runs.

    Raises UsageError, ClusterError.
    """
    if not any(pod_answers.obstacle(pod) is None for pod in pods):
        return None
    answers = pod_answers.answers(api, target.namespace, pods, debug_image)
    return merged(target, answers, min(map(objects.created, pods)))


def _not_running(job: Job, pods: Sequence[Json]) -> Job:
    """Return the job with what its pods do, none of which runs."""
    phases = {str(objects.status(pod).get("phase")) for pod in pods}
    ended = State.FAILED if "Failed" in phases else State.SUCCEEDED
    state = ended if phases <= {"Succeeded", "Failed"} else State.PENDING
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        if (found := pod_answers.obstacle(pod)) is not None:
            reasons.setdefault(found.text, []).append(objects.name(pod))
    detail = "; ".join(f"{_pods(names)}: {text}" for text, names in reasons.items())
    namespace = objects.metadata(pods[0]).get("namespace", "")
    hint = f"`kubectl describe pod {objects.name(pods[0])} -n {namespace}` shows more"
    return dataclasses.replace(job, state=state, detail=f"none of its pods runs: {detail}", hint=hint)


# --- all pods


def merged(target: Target, answers: Sequence[Answer], started: float) -> Bundle:
    """Return the evidence of all pods, judged. Raises ClusterError without any, UsageError for two jobs."""
    with_ranks = [each for each in answers if each.evidence is not None]
    if not with_ranks and any(each.silent for each in answers):
        first = next(each for each in answers if each.silent)
        raise ClusterError(
            f"no pod of {target} could be looked at: {first.pod}: {first.why}",
            hint="it takes a python3 >= 3.9, in the image of the ranks or in that of --debug-image, and a "
            "node that answers",
        )
    _refuse_several_jobs(target, with_ranks)
    # Pods that are left of an earlier try, and those of launchers, tell nothing where every rank is there.
    nodes = with_ranks if _is_whole(with_ranks) else list(answers)
    texts = _texts(nodes)
    evidence = [
        NodeEvidence(number, each.pod, time.time(), each.phase, missing=[texts[each.pod]])
        if each.evidence is None
        else dataclasses.replace(each.evidence, node=number)
        for number, each in enumerate(nodes)
    ]
    silent = [number for number, each in enumerate(nodes) if each.silent]
    made = outside.bundle(
        target.name or target.selector, started, evidence, silent, [each.pod for each in nodes]
    )
    machines = {number: each.machine for number, each in enumerate(nodes) if each.machine}
    return dataclasses.replace(made, verdicts=[each.on(machines) for each in made.verdicts])


def _is_whole(answers: Iterable[Answer]) -> bool:
    ranks = [rank for each in answers if each.evidence for rank in each.evidence.ranks]
    size = max((rank.world_size or 0 for rank in ranks), default=0)
    return size > 0 and {rank.rank for rank in ranks} == set(range(size))


def _texts(answers: Iterable[Answer]) -> dict[str, str]:
    """Return by pod what is to be known of those without evidence: one text for those with one reason."""
    reasons: dict[str, list[str]] = {}
    for each in answers:
        if each.evidence is None:
            reasons.setdefault(each.why, []).append(each.pod)
    return {pod: f"{_pods(pods)}: {why}" for why, pods in reasons.items() for pod in pods}


def _pods(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} pods, such as {names[0]}"
    return f"pod{'s' * (len(names) > 1)} {listing(names)}"


def _refuse_several_jobs(target: Target, answers: Iterable[Answer]) -> None:
    named = "name one job: by its kind and name, by more labels, or a single pod of it"
    hint = f"name one of its groups: '{target.one_job}'" if target.one_job else named
    pods: dict[int, str] = {}
    for each in answers:
        for rank in each.evidence.ranks if each.evidence else []:
            if pods.setdefault(rank.rank, each.pod) != each.pod:
                raise UsageError(
                    f"rank {rank.rank} runs in two {'' if target.kind else 'of the '}pods of {target}, "
                    f"{pods[rank.rank]} and {each.pod}: they are of several jobs, or were given one number",
                    hint=hint,
                )
