"""Looks at the ranks of a job that ddplaunch did not start, through a command in each of its pods.

The agent goes through the command's standard input into memory, and leaves nothing in the pod.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from ddplaunch.agent.contract import Bundle, NodeEvidence, Phase, PhaseName
from ddplaunch.agent.text.quantities import listing, plural
from ddplaunch.backends import foreign_jobs
from ddplaunch.backends.foreign_jobs import PySpy
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.kubernetes import foreign_pods, objects, pod_exec
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.foreign_pods import Debugger, Target
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError, NotFoundError, UsageError
from ddplaunch.render import archive

_NAMED: Final = 4
"""Pods that a text names. If there are more, the rest is given as a number."""


def diagnose(path: str, debug_image: str = "") -> tuple[Job, Bundle | None]:
    """Return the job that the text after kubernetes:// names, and the evidence of its ranks.

    `debug_image`: look from a container with this image, which is added to each pod; "": look from the ranks'
    container. The bundle is None if none of its pods is running. Raises NotFoundError, UsageError and
    ClusterError.
    """
    target = foreign_pods.parse(path)
    api = Api()
    try:
        pods = foreign_pods.find(api, target)
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
    return foreign_jobs.explained(job, made, in_debug_container=bool(debug_image)), made


def of_owner(api: Api, namespace: str, owner: Json) -> Bundle | None:
    """Return the evidence of a Job or a JobSet that ddplaunch did not start; None if no pod of it runs.

    Raises UsageError and ClusterError.
    """
    kind = next(each for each in foreign_pods.KINDS if each.word == owner.get("kind"))
    target = Target(namespace, kind, objects.name(owner))
    try:
        return collect(api, target, foreign_pods.find(api, target))
    except NotFoundError:
        return None


def collect(api: Api, target: Target, pods: Sequence[Json], debug_image: str = "") -> Bundle | None:
    """Return the evidence of the ranks in these pods; None if none of the pods is running.

    Raises UsageError and ClusterError.
    """
    if not any(obstacle(pod) is None for pod in pods):
        return None
    found = answers(api, target.namespace, pods, debug_image)
    return merged(target, found, min(map(objects.created, pods)))


def _not_running(job: Job, pods: Sequence[Json]) -> Job:
    """Return the job with what its pods do, none of which is running."""
    phases = {str(objects.status(pod).get("phase")) for pod in pods}
    ended = State.FAILED if "Failed" in phases else State.SUCCEEDED
    state = ended if phases <= {"Succeeded", "Failed"} else State.PENDING
    reasons: dict[str, list[str]] = {}
    for pod in pods:
        if (found := obstacle(pod)) is not None:
            reasons.setdefault(found.text, []).append(objects.name(pod))
    detail = "; ".join(f"{_pods(names)}: {text}" for text, names in reasons.items())
    namespace = objects.metadata(pods[0]).get("namespace", "")
    hint = f"`kubectl describe pod {objects.name(pods[0])} -n {namespace}` shows more"
    return dataclasses.replace(job, state=state, detail=f"none of its pods runs: {detail}", hint=hint)


# --- all pods


def merged(target: Target, answers: Sequence[Answer], started: float) -> Bundle:
    """Return the evidence of all pods, with the verdicts on it.

    Raises ClusterError if there is none, and UsageError if the pods belong to two jobs.
    """
    with_ranks = [each for each in answers if each.evidence is not None]
    if not with_ranks and any(each.silent for each in answers):
        first = next(each for each in answers if each.silent)
        raise ClusterError(
            f"no pod of {target} could be looked at: {first.pod}: {first.why}",
            hint="this needs python3 >= 3.9, in the ranks' image or in that of --debug-image, and a node "
            "that answers",
        )
    _refuse_several_jobs(target, with_ranks)
    # If every rank is there, leftover pods of an earlier try, and launchers' pods, add nothing.
    nodes = with_ranks if _is_whole(with_ranks) else list(answers)
    texts = _texts(nodes)
    evidence = [
        NodeEvidence(number, each.pod, time.time(), each.phase, missing=[texts[each.pod]])
        if each.evidence is None
        else dataclasses.replace(each.evidence, node=number)
        for number, each in enumerate(nodes)
    ]
    silent = [number for number, each in enumerate(nodes) if each.silent]
    made = foreign_jobs.bundle(
        target.name or target.selector, started, evidence, silent, [each.pod for each in nodes]
    )
    machines = {number: each.machine for number, each in enumerate(nodes) if each.machine}
    return dataclasses.replace(made, verdicts=[each.on(machines) for each in made.verdicts])


def _is_whole(answers: Iterable[Answer]) -> bool:
    ranks = [rank for each in answers if each.evidence for rank in each.evidence.ranks]
    size = max((rank.world_size or 0 for rank in ranks), default=0)
    return size > 0 and {rank.rank for rank in ranks} == set(range(size))


def _texts(answers: Iterable[Answer]) -> dict[str, str]:
    """Return, by pod, what there is to know about the pods without evidence: one text for each reason."""
    reasons: dict[str, list[str]] = {}
    for each in answers:
        if each.evidence is None:
            reasons.setdefault(each.why, []).append(each.pod)
    return {pod: f"{_pods(pods)}: {why}" for why, pods in reasons.items() for pod in pods}


def _pods(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} pods, such as {names[0]}"
    return f"{plural(len(names), 'pod')} {listing(names)}"


def _refuse_several_jobs(target: Target, answers: Iterable[Answer]) -> None:
    named = "name one job: by its kind and name, by more labels, or by one of its pods"
    hint = f"name one of its groups: '{target.one_job}'" if target.one_job else named
    pods: dict[int, str] = {}
    for each in answers:
        for rank in each.evidence.ranks if each.evidence else []:
            if pods.setdefault(rank.rank, each.pod) != each.pod:
                raise UsageError(
                    f"rank {rank.rank} runs in two {'' if target.kind else 'of the '}pods of {target}, "
                    f"{pods[rank.rank]} and {each.pod}: they belong to several jobs, or were given the same "
                    "number",
                    hint=hint,
                )


_LIMIT: Final = 60.0
"""Seconds for a pod to start the agent, which watches the ranks for 5 to 15, and to send the evidence."""
_AT_ONCE: Final = 64
"""Pods to look at together: a thousand take some minutes, and the API server has other requests to serve."""
_ADDS_ONE: Final = "--debug-image IMAGE adds a container that has one"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Answer(NamedTuple):
    """The evidence of one pod, or why there is none. `phase`: for a pod without evidence."""

    pod: str
    machine: str
    evidence: NodeEvidence | None
    why: str = ""
    phase: PhaseName = Phase.STARTING
    silent: bool = False  # it is running, but gave no answer


def answers(api: Api, namespace: str, pods: Sequence[Json], debug_image: str) -> list[Answer]:
    """Return what each pod shows, in their order. Raises ClusterError if this user may not ask them."""
    command = _Command(api, namespace, archive.agent_archive(), foreign_jobs.packed_py_spy())
    try:
        return _beside(command, pods, debug_image) if debug_image else _at_once(command.inside, pods)
    except pod_exec.NotAllowedError as error:
        raise _not_allowed(namespace, str(error)) from error


def _beside(command: _Command, pods: Sequence[Json], image: str) -> list[Answer]:
    """Return their answers, from containers with this image.

    Pulling the image takes time, so the ranks are looked at when all the containers are there.
    """
    found: list[Answer] = []
    for first in range(0, len(pods), _AT_ONCE):
        some = pods[first : first + _AT_ONCE]
        debuggers = _at_once(lambda pod: command.debugger(image, pod), some)
        both = list(zip(some, debuggers, strict=True))
        found += _at_once(lambda each: command.beside(image, *each), both)
    return found


def _at_once(ask: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return a result for each item, in their order; `_AT_ONCE` are asked together. Raises what `ask`
    raises.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, list[_Result] | Exception]] = queue.SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)

    def work() -> None:
        while not waiting.empty():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, [ask(items[number])]))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                done.put((number, error))

    for _ in range(min(_AT_ONCE, len(items))):
        threading.Thread(target=work, daemon=True).start()  # Ctrl-C must not wait for any of them
    results: dict[int, _Result] = {}
    while len(results) < len(items):
        number, result = done.get()
        if isinstance(result, Exception):
            raise result
        (results[number],) = result
    return [results[number] for number in range(len(items))]


class _Command(NamedTuple):
    """The command by which each pod is asked."""

    api: Api
    namespace: str
    agent: bytes
    spy: PySpy

    def inside(self, pod: Json) -> Answer:
        """Return what can be seen from the ranks' container."""
        answer, (container, many) = _unasked(pod), foreign_pods.container(pod)
        if not answer.silent:
            return answer
        where = f" (in its container {container}, one of {many})" if many > 1 else ""
        return self._asked(answer, container, where, _ADDS_ONE)

    def debugger(self, image: str, pod: Json, gone: str = "") -> Debugger | None:
        """Return the container that was added to a pod; None if the pod is not asked."""
        if not _unasked(pod).silent:
            return None
        target = foreign_pods.container(pod)[0]
        return foreign_pods.started(self.api, self.namespace, objects.name(pod), target, image, gone)

    def beside(self, image: str, pod: Json, debugger: Debugger | None) -> Answer:
        """Return the answer of the container that was added to the pod."""
        answer = _unasked(pod)
        if debugger is None or debugger.why:
            return answer if debugger is None else answer._replace(why=f"no answer: {debugger.why}")
        container, many = foreign_pods.container(pod)
        where = f" (in its container {container}, one of {many})" if many > 1 else ""
        found = self._asked(answer, debugger.name, where)
        if found.silent and debugger.is_shared:  # it has ended together with the look for which it was made
            return self.beside(image, pod, self.debugger(image, pod, gone=debugger.name))
        return found

    def _asked(self, answer: Answer, container: str, where: str, otherwise: str = "") -> Answer:
        """Return the answer of a command in this container. `otherwise`: what to do if there is no Python."""
        words = [
            "python3",
            "-I",
            "-S",
            "-c",
            foreign_jobs.AGENT_WITH_PY_SPY,
            *self.spy.words,
            str(len(self.agent)),
        ]
        words += ["look", "--all"]

        def stdin(printed: str) -> bytes:
            return self.spy.packed + self.agent if foreign_jobs.WANTED in printed else self.agent

        try:
            ran = pod_exec.execute(self.api, self.namespace, answer.pod, container, words, _LIMIT, stdin)
        except pod_exec.UnusableError as error:
            return answer._replace(why=_no_answer(str(error), otherwise))
        evidence = foreign_jobs.unpacked(ran.out.partition("\n")[2], 0)
        if evidence is None:
            return answer._replace(why=_no_answer(_why_none(ran), otherwise))
        if evidence.ranks:
            return answer._replace(evidence=dataclasses.replace(evidence, host=answer.pod), silent=False)
        return answer._replace(why=f"no ranks{where}: {'; '.join(evidence.missing)}", silent=False)


def _unasked(pod: Json) -> Answer:
    """Return the answer of a pod that gives none. The pod is not silent if it cannot be asked."""
    answer = Answer(objects.name(pod), str(objects.spec(pod).get("nodeName") or ""), None, silent=True)
    if (its := obstacle(pod)) is None:
        return answer
    return answer._replace(why=its.text, phase=its.phase, silent=False)


def obstacle(pod: Json) -> foreign_pods.Obstacle | None:
    """Return why nothing can run in the container of the pod's ranks; None if something can."""
    return foreign_pods.obstacle(pod, foreign_pods.container(pod)[0])


def _why_none(ran: pod_exec.Ran) -> str:
    lines = [line.strip() for line in ran.errors.splitlines() if line.strip()]
    ended = "it was cut off" if ran.code is None else f"the agent ended with exit code {ran.code}"
    return lines[-1] if lines else ended


def _no_answer(why: str, otherwise: str) -> str:
    text = why.lower()
    if "python3" in text and ("not found" in text or "no such file" in text):
        why = "its image has no python3, which is needed to look at it"
    elif "the agent needs" not in text:
        otherwise = ""
    return f"no answer: {why}" + (f"; {otherwise}" if otherwise else "")


def _not_allowed(namespace: str, message: str) -> ClusterError:
    return ClusterError(
        f"you may not run a command in the pods of namespace {namespace}, which is needed to look at their "
        f"ranks: {message}",
        hint='a Role there needs {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}, beside '
        "[get, list] of pods: docs/how-to/diagnose.md has the whole Role",
    )
