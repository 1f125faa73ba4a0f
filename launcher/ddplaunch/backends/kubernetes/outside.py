"""Looks at the ranks of a job that ddplaunch did not start: by a command in each of its pods.

The agent travels through the command's standard input into memory, and leaves nothing in the pod.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ddplaunch.agent.contract import Bundle, NodeEvidence, Phase, PhaseName
from ddplaunch.agent.text.ranges import listing
from ddplaunch.backends import in_memory, outside
from ddplaunch.backends.in_memory import PySpy
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.kubernetes import objects, outside_pods, pod_exec
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.backends.kubernetes.outside_pods import Target
from ddplaunch.errors import ClusterError, NotFoundError, UsageError
from ddplaunch.render import archive

_LIMIT: Final = 60.0
"""Seconds for a pod to start the agent, which watches the ranks for 5 to 15, and to send the evidence."""
_AT_ONCE: Final = 64
"""Pods that are looked at together: a thousand take some minutes, and the API server other requests."""
_NAMED: Final = 4
"""Pods that a text names; more of them share a number."""
_WITHOUT_PYTHON: Final = (
    "its image has no python3, which the look needs; a container beside it could have one, by "
    "`kubectl debug --target`, but ddplaunch starts none"
)


class Answer(NamedTuple):
    """Evidence of one pod, or why there is none. `phase`: of a pod without evidence."""

    pod: str
    machine: str
    evidence: NodeEvidence | None
    why: str = ""
    phase: PhaseName = Phase.STARTING
    silent: bool = False  # it runs, and gave no answer


def diagnose(path: str) -> tuple[Job, Bundle | None]:
    """Return the job that the text after kubernetes:// names, and the evidence of its ranks.

    The bundle is None where none of its pods runs. Raises NotFoundError, UsageError, ClusterError.
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
        made = collect(api, target, pods)
    finally:
        api.close()
    return (_not_running(job, pods), None) if made is None else (outside.explained(job, made), made)


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


def collect(api: Api, target: Target, pods: Sequence[Json]) -> Bundle | None:
    """Return the evidence of the ranks in these pods; None where none of them runs.

    Raises UsageError, ClusterError.
    """
    if not any(_obstacle(pod) is None for pod in pods):
        return None
    return merged(target, _answers(api, target, pods), min(map(objects.created, pods)))


def _obstacle(pod: Json) -> outside_pods.Obstacle | None:
    return outside_pods.obstacle(pod, outside_pods.container(pod)[0])


def _not_running(job: Job, pods: Sequence[Json]) -> Job:
    """Return the job with what its pods do, none of which runs."""
    phases = {str(objects.status(pod).get("phase")) for pod in pods}
    ended = State.FAILED if "Failed" in phases else State.SUCCEEDED
    state = ended if phases <= {"Succeeded", "Failed"} else State.PENDING
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        if (found := _obstacle(pod)) is not None:
            reasons.setdefault(found.text, []).append(objects.name(pod))
    detail = "; ".join(f"{_pods(names)}: {text}" for text, names in reasons.items())
    namespace = objects.metadata(pods[0]).get("namespace", "")
    hint = f"`kubectl describe pod {objects.name(pods[0])} -n {namespace}` shows more"
    return dataclasses.replace(job, state=state, detail=f"none of its pods runs: {detail}", hint=hint)


# --- one pod


def _answers(api: Api, target: Target, pods: Sequence[Json]) -> list[Answer]:
    """Return what each pod shows, in their order. Raises ClusterError where this user may not ask them."""
    agent, spy = archive.looking_agent_archive(), in_memory.packed_py_spy()
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Answer | Exception]] = queue.SimpleQueue()
    for number in range(len(pods)):
        waiting.put(number)

    def work() -> None:
        while not waiting.empty():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, _answer(api, target.namespace, pods[number], agent, spy)))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                done.put((number, error))

    for _ in range(min(_AT_ONCE, len(pods))):
        threading.Thread(target=work, daemon=True).start()  # Ctrl-C waits for none
    answers: dict[int, Answer] = {}
    while len(answers) < len(pods):
        number, found = done.get()
        if isinstance(found, pod_exec.NotAllowedError):
            raise _not_allowed(target, str(found)) from found
        if isinstance(found, Exception):
            raise found
        answers[number] = found
    return [answers[number] for number in range(len(pods))]


def _answer(api: Api, namespace: str, pod: Json, agent: bytes, spy: PySpy) -> Answer:
    name, (container, many) = objects.name(pod), outside_pods.container(pod)
    answer = Answer(name, str(objects.spec(pod).get("nodeName") or ""), None, silent=True)
    if (obstacle := outside_pods.obstacle(pod, container)) is not None:
        return answer._replace(why=obstacle.text, phase=obstacle.phase, silent=False)
    words = ["python3", "-I", "-S", "-c", in_memory.AGENT_WITH_PY_SPY, *spy.words, str(len(agent))]

    def stdin(printed: str) -> bytes:
        return spy.packed + agent if in_memory.WANTED in printed else agent

    try:
        ran = pod_exec.execute(api, namespace, name, container, [*words, "look", "--all"], _LIMIT, stdin)
    except pod_exec.UnusableError as error:
        return answer._replace(why=_no_answer(str(error)))
    evidence = outside.unpacked(ran.out.partition("\n")[2], 0)
    if evidence is None:
        return answer._replace(why=_why_none(ran))
    if evidence.ranks:
        return answer._replace(evidence=dataclasses.replace(evidence, host=name), silent=False)
    where = f" (in its container {container}, one of {many})" if many > 1 else ""
    return answer._replace(why=f"no ranks{where}: {'; '.join(evidence.missing)}", silent=False)


def _why_none(ran: pod_exec.Ran) -> str:
    lines = [line.strip() for line in ran.errors.splitlines() if line.strip()]
    ended = "it was cut off" if ran.code is None else f"the agent ended with exit code {ran.code}"
    return _no_answer(lines[-1] if lines else ended)


def _no_answer(why: str) -> str:
    text = why.lower()
    is_absent = "python3" in text and ("not found" in text or "no such file" in text)
    return f"no answer: {_WITHOUT_PYTHON if is_absent else why}"


def _not_allowed(target: Target, message: str) -> ClusterError:
    return ClusterError(
        f"you may not run a command in the pods of namespace {target.namespace}, by which their ranks are "
        f"looked at: {message}",
        hint='a Role there needs {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}, beside '
        "[get, list] of pods: docs/how-to/diagnose.md has it whole",
    )


# --- all pods


def merged(target: Target, answers: Sequence[Answer], started: float) -> Bundle:
    """Return the evidence of all pods, judged. Raises ClusterError without any, UsageError for two jobs."""
    with_ranks = [each for each in answers if each.evidence is not None]
    if not with_ranks and any(each.silent for each in answers):
        first = next(each for each in answers if each.silent)
        raise ClusterError(
            f"no pod of {target} could be looked at: {first.pod}: {first.why}",
            hint="it takes a python3 >= 3.9 in the container of the ranks, and a node that answers",
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
    pods: dict[int, str] = {}
    for each in answers:
        for rank in each.evidence.ranks if each.evidence else []:
            if pods.setdefault(rank.rank, each.pod) != each.pod:
                raise UsageError(
                    f"rank {rank.rank} runs in two {'' if target.kind else 'of the '}pods of {target}, "
                    f"{pods[rank.rank]} and {each.pod}: they are of several jobs, or were given one number",
                    hint="name one job: by its kind and name, by more labels, or a single pod of it",
                )
