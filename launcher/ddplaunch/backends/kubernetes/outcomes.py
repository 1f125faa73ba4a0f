"""Works out how a job ended, from its agents' termination messages and the API's objects. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, Fact, Phase, Verdict
from ddplaunch.agent.text.saying import Text
from ddplaunch.backends.job import BY_CANCEL, LINGER, STOPPED_OUTSIDE, Outcome, State
from ddplaunch.backends.kubernetes import node_status, objects
from ddplaunch.backends.kubernetes.node_status import Group, TerminationMessage
from ddplaunch.backends.kubernetes.objects import GATE, HUB, PYTHON, TRAINER, Json
from ddplaunch.backends.kubernetes.queries import ApiState

_AGENT_EXIT_CODES = frozenset(value for name, value in vars(Exit).items() if name.isupper())


_KILLED = "rank-killed-memory"
_CODES = {
    _KILLED: Exit.OUT_OF_MEMORY,
    "image-lacks": Exit.UNUSABLE,
    "launch-failed": Exit.WORKER_FAILED,
}
"""Exit codes by the problem of an agent that was killed or never ran, and so left none itself."""


def outcome(state: ApiState, now: float, groups: Sequence[Group] = ()) -> Outcome | None:
    """Return how the job ended; None while it has not. `groups`: its nodes that have a problem."""
    owner = state.owner
    assert owner is not None
    done = objects.condition(owner, "Complete") or objects.condition(owner, "Completed")
    if done is not None:
        return Outcome(State.SUCCEEDED, Exit.OK, ended=objects.at(done.get("lastTransitionTime")))
    failed = _failure(owner)
    if failed is None or (objects.condition(owner, "Failed") is None and not lingers(state, now)):
        return None
    found = _failed(state, failed, groups)
    return found._replace(ended=objects.at(failed.get("lastTransitionTime")))


def lingers(state: ApiState, now: float) -> bool:
    """Whether the job has failed and its hub has ended, but a pod has not: its machine may be lost."""
    owner = state.owner or {}
    if objects.condition(owner, "Failed") is not None or objects.condition(owner, "FailureTarget") is None:
        return False
    first = next((pod for pod in state.pods if objects.node(pod) == 0), None)
    if first is None or node_status.is_silent(first):
        return True
    hub = objects.state(first, HUB, "terminated")
    return hub is not None and now - (objects.at(hub.get("finishedAt")) or now) >= LINGER


def _failed(state: ApiState, failed: Json, groups: Sequence[Group]) -> Outcome:
    # A JobSet does not say why its Job failed. The Job does.
    inner = _failure(state.job or {}) or failed
    first = first_failure(state)
    code = termination_message(state.pods).exit_code
    if code is None and first is not None:
        code = first.exit_code
    reason = str(inner.get("reason") or "")
    if code not in (None, Exit.OK, Exit.STOPPED):
        return Outcome(State.FAILED, code, _by_kubernetes(state, reason, ()))
    detail = _by_kubernetes(state, reason, groups)
    known = [_CODES[group.problem.code] for group in groups if group.problem.code in _CODES]
    if known:
        return Outcome(State.FAILED, known[0], detail)
    if not detail:
        detail = (
            f"{first.where}: {_STOPPED}" if first and first.is_stopped else objects.line(inner.get("message"))
        )
    taken = groups[0].problem.code == "node-evicted" if groups else first is not None and first.is_stopped
    if taken or reason == "DeadlineExceeded":
        code = Exit.STOPPED
    elif not objects.is_ours(state.owner or {}):
        return Outcome(State.FAILED, None, detail)  # it has no agent that would leave a result
    return Outcome(State.LOST, code, detail)


_STOPPED = f"{STOPPED_OUTSIDE}: drained, preempted, evicted or deleted"
_FIRST = re.compile(
    r"(?:Container (\w+) for pod|Pod) [^\s/]+/(\S+) (?:failed with exit code (\d+)|has condition (\w+))"
)


class Failure(NamedTuple):
    """The pod whose failure ended the job. The Job's condition names it, even if the pod is gone."""

    node: int
    pod: str
    exit_code: int | None
    is_stopped: bool  # by something outside the job

    @property
    def where(self) -> str:
        return f"node {self.node} (pod {self.pod})"


def first_failure(state: ApiState) -> Failure | None:
    """Return the failure that the Job's condition names; None: it names none. The other pods are deleted."""
    job = state.job or {}
    match = _FIRST.search(str((_failure(job) or {}).get("message") or ""))
    number = match and re.match(r"(\d+)-", match[2].removeprefix(f"{objects.name(job)}-"))
    if not match or not number:
        return None
    code = int(match[3]) if match[3] else None
    known = code if code in _AGENT_EXIT_CODES else None
    return Failure(int(number[1]), match[2], known, match[4] == "DisruptionTarget" or code == Exit.STOPPED)


def _failure(job: Json) -> Json | None:
    """Return the condition of a Job that fails. It is set before the Job's last pod is gone."""
    return objects.condition(job, "Failed") or objects.condition(job, "FailureTarget")


def _by_kubernetes(state: ApiState, reason: str, groups: Sequence[Group]) -> str:
    """Return how Kubernetes ended the job; empty if Kubernetes did not end it."""
    if reason == "DeadlineExceeded":
        limit = objects.spec(state.job or {}).get("activeDeadlineSeconds")
        return f"Kubernetes ended it at its deadline of {limit} s (`kubernetes.active_deadline`)"
    return "; ".join(group.sentence for group in groups[:2])


def deleted(*, cancelled: bool) -> Outcome:
    """Return the outcome of a job that was deleted before its end was recorded."""
    if cancelled:
        return Outcome(State.CANCELLED, None, BY_CANCEL)
    return Outcome(State.LOST, Exit.STOPPED, "it was deleted from the cluster, not by `ddplaunch cancel`")


def as_cancelled(outcome: Outcome) -> Outcome:
    """Return the outcome of a job that `ddplaunch cancel` has asked to end."""
    if outcome.state is not State.LOST or outcome.exit_code not in (None, Exit.STOPPED):
        return outcome
    return outcome._replace(state=State.CANCELLED, detail=BY_CANCEL)


def termination_message(pods: Iterable[Json]) -> TerminationMessage:
    """Return the hub's message; without one, those of gates and supervisors combined, with their exit
    codes.
    """
    messages: list[tuple[int, TerminationMessage]] = []
    codes: list[tuple[float, int]] = []
    for pod in pods:
        if node_status.is_left_out(pod):
            continue
        for rank, name in enumerate((HUB, TRAINER, GATE, PYTHON)):
            ended = objects.state(pod, name, "terminated")
            if not ended:
                continue
            message = node_status.parse_message(str(ended.get("message") or ""))
            if message is not None:
                messages.append((rank, message))
            code = (
                Exit.OUT_OF_MEMORY if ended.get("reason") == "OOMKilled" else int(ended.get("exitCode") or 0)
            )
            if name != HUB and code in _AGENT_EXIT_CODES and code != Exit.OK:
                codes.append((objects.at(ended.get("finishedAt")) or 0.0, code))
    messages.sort(key=lambda each: each[0])
    hub = next((message for rank, message in messages if rank == 0 and message.exit_code is not None), None)
    verdicts = (hub.verdicts if hub else []) or _merged(message.verdicts for _, message in messages)
    hub_code = (
        hub.exit_code
        if hub
        else next((message.exit_code for _, message in messages if message.exit_code), None)
    )
    return TerminationMessage(
        hub_code if hub_code is not None else min(codes, default=(0.0, None))[1], verdicts
    )


def _merged(lists: Iterable[list[Verdict]]) -> list[Verdict]:
    found: dict[tuple[str, Text], Verdict] = {}
    for verdicts in lists:
        for each in verdicts:
            found.setdefault(each.cause, each)
    return list(found.values())


def verdicts(state: ApiState, groups: Sequence[Group], machines: Mapping[int, str]) -> list[Verdict]:
    """Return verdicts from the API's objects, with the nodes' `machines`, for a job whose hub left none."""
    found = [_verdict(group) for group in groups]
    first = first_failure(state)
    if first is not None and first.is_stopped and not found:
        hint = "`kubectl get events` shows why, for an hour; submit it again"
        found = [
            Verdict.of("node-evicted", f"{first.where}: {_STOPPED}", "run", nodes=[first.node], hint=hint)
        ]
    failed = _failure(state.job or {}) or {}
    if failed.get("reason") == "DeadlineExceeded":
        found.insert(
            0,
            Verdict.of(
                "node-evicted",
                _by_kubernetes(state, "DeadlineExceeded", ()),
                "run",
                facts=[objects.line(failed.get("message"))],
                hint="raise `kubernetes.active_deadline`, or save checkpoints and submit it again",
            ),
        )
    return [each.on(machines) for each in found]


def _verdict(group: Group) -> Verdict:
    problem = group.problem
    if problem.verdict is not None:
        return problem.verdict.saying(group.text)
    launch = ("node-missing", "image-lacks", "launch-failed")
    return Verdict.of(
        problem.code,
        group.sentence,
        "launch" if problem.code in launch else "run",
        nodes=list(group.nodes),
        hint=problem.hint,
    )


def enriched(
    known: Sequence[Verdict],
    groups: Sequence[Group],
    machines: Mapping[int, str],
    own: Sequence[Verdict] | None = None,
) -> list[Verdict]:
    """Return the job's verdicts, with the nodes' `machines` and with what Kubernetes knows beyond them.

    Kubernetes knows why a node never came and which agents were killed. `own`: the job's own verdicts, if the
    `known` ones were enriched before. Verdicts that were enriched are left unchanged.
    """
    unexplained = {each.cause for each in (known if own is None else own)}
    killed = [group for group in groups if group.problem.code == _KILLED]
    besides = [] if any(each.code == _KILLED for each in known) else map(_verdict, killed)
    found = [*besides]
    for each in known:
        found += _enriched(each, groups) if each.cause in unexplained else [each]
    return [each.on(machines) for each in found]


def says_node_is_silent(verdict: Verdict) -> bool:
    """Whether the verdict only says that a node is silent; Kubernetes may be able to explain that."""
    return verdict.code in ("node-missing", "network-lost")


def _enriched(verdict: Verdict, groups: Sequence[Group]) -> list[Verdict]:
    if not says_node_is_silent(verdict):
        return [verdict]
    why = [group for group in groups if set(group.nodes) & set(verdict.nodes)]
    reports = [group for group in why if group.problem.verdict is not None]
    if reports and set(verdict.nodes) <= {node for group in reports for node in group.nodes}:
        return [_verdict(group) for group in reports]  # they started, but did not reach the hub
    if not why:
        return [verdict]
    first, *others = why
    return [
        dataclasses.replace(
            verdict.continued(": ", first.text),
            because=[*(Fact(group.sentence) for group in others), *verdict.because],
            hint=first.problem.hint or verdict.hint,
        )
    ]


def has_begun(nodes: Iterable[node_status.Node]) -> bool:
    """Whether the agent of any node is running or has run."""
    return any(each.phase != Phase.STARTING for each in nodes)
