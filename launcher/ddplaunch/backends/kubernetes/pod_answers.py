"""Runs the agent in pods of anybody's: in the container of the ranks, or in one that is added beside it."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from ddplaunch.agent.contract import NodeEvidence, Phase, PhaseName
from ddplaunch.backends import in_memory, outside
from ddplaunch.backends.in_memory import PySpy
from ddplaunch.backends.kubernetes import debug_container, objects, outside_pods, pod_exec
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.debug_container import Debugger
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError
from ddplaunch.render import archive

_LIMIT: Final = 60.0
"""Seconds for a pod to start the agent, which watches the ranks for 5 to 15, and to send the evidence."""
_AT_ONCE: Final = 64
"""Pods that are looked at together: a thousand take some minutes, and the API server other requests."""
_ADDS_ONE: Final = "--debug-image IMAGE adds a container that has one"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Answer(NamedTuple):
    """Evidence of one pod, or why there is none. `phase`: of a pod without evidence."""

    pod: str
    machine: str
    evidence: NodeEvidence | None
    why: str = ""
    phase: PhaseName = Phase.STARTING
    silent: bool = False  # it runs, and gave no answer


def answers(api: Api, namespace: str, pods: Sequence[Json], debug_image: str) -> list[Answer]:
    """Return what each pod shows, in their order. Raises ClusterError where this user may not ask them."""
    command = _Command(api, namespace, archive.agent_archive(), in_memory.packed_py_spy())
    try:
        return _beside(command, pods, debug_image) if debug_image else _at_once(command.inside, pods)
    except pod_exec.NotAllowedError as error:
        raise _not_allowed(namespace, str(error)) from error


def _beside(command: _Command, pods: Sequence[Json], image: str) -> list[Answer]:
    """Return their answers in containers of this image.

    A pull takes its time: the ranks are looked at when the containers of all are there.
    """
    found: list[Answer] = []
    for first in range(0, len(pods), _AT_ONCE):
        some = pods[first : first + _AT_ONCE]
        debuggers = _at_once(lambda pod: command.debugger(image, pod), some)
        both = list(zip(some, debuggers, strict=True))
        found += _at_once(lambda each: command.beside(image, *each), both)
    return found


def _at_once(ask: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return a result for each, in their order; `_AT_ONCE` are asked together. Raises what `ask` raises."""
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
        threading.Thread(target=work, daemon=True).start()  # Ctrl-C waits for none
    results: dict[int, _Result] = {}
    while len(results) < len(items):
        number, result = done.get()
        if isinstance(result, Exception):
            raise result
        (results[number],) = result
    return [results[number] for number in range(len(items))]


class _Command(NamedTuple):
    """Command by which each pod is asked."""

    api: Api
    namespace: str
    agent: bytes
    spy: PySpy

    def inside(self, pod: Json) -> Answer:
        """Return what the container of the ranks shows."""
        answer, (container, many) = _unasked(pod), outside_pods.container(pod)
        if not answer.silent:
            return answer
        where = f" (in its container {container}, one of {many})" if many > 1 else ""
        return self._asked(answer, container, where, _ADDS_ONE)

    def debugger(self, image: str, pod: Json, gone: str = "") -> Debugger | None:
        """Return the container that was added to a pod; None where the pod is not asked."""
        if not _unasked(pod).silent:
            return None
        target = outside_pods.container(pod)[0]
        return debug_container.started(self.api, self.namespace, objects.name(pod), target, image, gone)

    def beside(self, image: str, pod: Json, debugger: Debugger | None) -> Answer:
        """Return what the container shows that was added to the pod."""
        answer = _unasked(pod)
        if debugger is None or debugger.why:
            return answer if debugger is None else answer._replace(why=f"no answer: {debugger.why}")
        container, many = outside_pods.container(pod)
        where = f" (in its container {container}, one of {many})" if many > 1 else ""
        found = self._asked(answer, debugger.name, where)
        if found.silent and debugger.is_shared:  # it has ended with the look for which it was made
            return self.beside(image, pod, self.debugger(image, pod, gone=debugger.name))
        return found

    def _asked(self, answer: Answer, container: str, where: str, otherwise: str = "") -> Answer:
        """Return the answer of a command in this container. `otherwise`: what helps without a Python."""
        words = [
            "python3",
            "-I",
            "-S",
            "-c",
            in_memory.AGENT_WITH_PY_SPY,
            *self.spy.words,
            str(len(self.agent)),
        ]
        words += ["look", "--all"]

        def stdin(printed: str) -> bytes:
            return self.spy.packed + self.agent if in_memory.WANTED in printed else self.agent

        try:
            ran = pod_exec.execute(self.api, self.namespace, answer.pod, container, words, _LIMIT, stdin)
        except pod_exec.UnusableError as error:
            return answer._replace(why=_no_answer(str(error), otherwise))
        evidence = outside.unpacked(ran.out.partition("\n")[2], 0)
        if evidence is None:
            return answer._replace(why=_no_answer(_why_none(ran), otherwise))
        if evidence.ranks:
            return answer._replace(evidence=dataclasses.replace(evidence, host=answer.pod), silent=False)
        return answer._replace(why=f"no ranks{where}: {'; '.join(evidence.missing)}", silent=False)


def _unasked(pod: Json) -> Answer:
    """Return the answer of a pod that gives none; it is not silent where it cannot be asked."""
    answer = Answer(objects.name(pod), str(objects.spec(pod).get("nodeName") or ""), None, silent=True)
    if (its := obstacle(pod)) is None:
        return answer
    return answer._replace(why=its.text, phase=its.phase, silent=False)


def obstacle(pod: Json) -> outside_pods.Obstacle | None:
    """Return why nothing can run in the container of the pod's ranks; None where something can."""
    return outside_pods.obstacle(pod, outside_pods.container(pod)[0])


def _why_none(ran: pod_exec.Ran) -> str:
    lines = [line.strip() for line in ran.errors.splitlines() if line.strip()]
    ended = "it was cut off" if ran.code is None else f"the agent ended with exit code {ran.code}"
    return lines[-1] if lines else ended


def _no_answer(why: str, otherwise: str) -> str:
    text = why.lower()
    if "python3" in text and ("not found" in text or "no such file" in text):
        why = "its image has no python3, which the look needs"
    elif "the agent needs" not in text:
        otherwise = ""
    return f"no answer: {why}" + (f"; {otherwise}" if otherwise else "")


def _not_allowed(namespace: str, message: str) -> ClusterError:
    return ClusterError(
        f"you may not run a command in the pods of namespace {namespace}, by which their ranks are "
        f"looked at: {message}",
        hint='a Role there needs {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}, beside '
        "[get, list] of pods: docs/how-to/diagnose.md has it whole",
    )
