"""Works out how a job ended: by its agents' termination messages, and by what Kubernetes did. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ddplaunch.agent.contract import Exit, Phase, Verdict, codec
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.platforms.physical_host import placed, unplaced
from ddplaunch.backends import files
from ddplaunch.backends.job import State
from ddplaunch.backends.kubernetes import node_status, objects
from ddplaunch.backends.kubernetes.node_status import Group
from ddplaunch.backends.kubernetes.objects import GATE, HUB, PYTHON, TRAINER, Json
from ddplaunch.backends.kubernetes.queries import ApiState

_SAID = frozenset(value for name, value in vars(Exit).items() if name.isupper())


_KILLED = "rank-killed-memory"
_CODES = {
    _KILLED: Exit.OUT_OF_MEMORY,
    "image-lacks": Exit.UNUSABLE,
    "launch-failed": CATALOGUE["launch-failed"].exit_code,
}
"""What no agent could say itself, because it was killed or never ran."""


class Outcome(NamedTuple):
    """The end of a job."""

    state: State
    exit_code: int | None
    detail: str = ""
    ended: float | None = None


class LastWords(NamedTuple):
    """Termination messages of the agents in a job's pods."""

    exit_code: int | None
    verdicts: list[Verdict]


LINGER = 4.0
"""Seconds after the hub's last word in which the pods of most jobs end."""


def outcome(seen: ApiState, now: float, groups: Sequence[Group] = ()) -> Outcome | None:
    """None: it has not ended. `groups`: its nodes that are in problem."""
    owner = seen.owner
    assert owner is not None
    done = objects.condition(owner, "Complete") or objects.condition(owner, "Completed")
    if done is not None:
        return Outcome(State.SUCCEEDED, Exit.OK, ended=objects.at(done.get("lastTransitionTime")))
    failed = _failure(owner)
    if failed is None or (objects.condition(owner, "Failed") is None and not lingers(seen, now)):
        return None
    found = _failed(seen, failed, groups)
    return found._replace(ended=objects.at(failed.get("lastTransitionTime")))


def lingers(seen: ApiState, now: float) -> bool:
    """Whether its failure is decided and its hub has ended, while a pod has not: its machine may be lost."""
    owner = seen.owner or {}
    if objects.condition(owner, "Failed") is not None or objects.condition(owner, "FailureTarget") is None:
        return False
    first = next((pod for pod in seen.pods if objects.node(pod) == 0), None)
    if first is None or node_status.is_silent(first):
        return True
    hub = objects.state(first, HUB, "terminated")
    return hub is not None and now - (objects.at(hub.get("finishedAt")) or now) >= LINGER


def _failed(seen: ApiState, failed: Json, groups: Sequence[Group]) -> Outcome:
    # Why the Job of a JobSet failed stands in the Job.
    inner = _failure(seen.job or {}) or failed
    first = first_failure(seen)
    code = last_words(seen.pods).exit_code
    if code is None and first is not None:
        code = first.exit_code
    reason = str(inner.get("reason") or "")
    if code not in (None, Exit.OK, Exit.STOPPED):
        return Outcome(State.FAILED, code, _by_kubernetes(seen, reason, ()))
    detail = _by_kubernetes(seen, reason, groups)
    known = [_CODES[group.problem.code] for group in groups if group.problem.code in _CODES]
    if known:
        return Outcome(State.FAILED, known[0], detail)
    if not detail:
        detail = f"{first.where}: {_STOPPED}" if first and first.is_told else _line(inner.get("message"))
    taken = groups[0].problem.code == "node-evicted" if groups else first is not None and first.is_told
    if taken or reason == "DeadlineExceeded":
        code = Exit.STOPPED
    return Outcome(State.LOST, code, detail)


_STOPPED = "told to stop, and not by `ddplaunch cancel`: drained, preempted, evicted or deleted"
_FIRST = re.compile(
    r"(?:Container (\w+) for pod|Pod) [^\s/]+/(\S+) (?:failed with exit code (\d+)|has condition (\w+))"
)


class Failure(NamedTuple):
    """The pod whose failure ended the job: its name stands in the Job for as long as the Job stands."""

    node: int
    pod: str
    exit_code: int | None
    is_told: bool  # to stop, from outside

    @property
    def where(self) -> str:
        return f"node {self.node} (pod {self.pod})"


def first_failure(seen: ApiState) -> Failure | None:
    """Return the first failure that the Job itself names: its other pods are deleted when it fails."""
    job = seen.job or {}
    match = _FIRST.search(str((_failure(job) or {}).get("message") or ""))
    number = match and re.match(r"(\d+)-", match[2].removeprefix(f"{objects.name(job)}-"))
    if not match or not number:
        return None
    code = int(match[3]) if match[3] else None
    known = code if code in _SAID else None
    return Failure(int(number[1]), match[2], known, match[4] == "DisruptionTarget" or code == Exit.STOPPED)


def _failure(job: Json) -> Json | None:
    """Return why a Job fails. It is decided before the last pod has gone."""
    return objects.condition(job, "Failed") or objects.condition(job, "FailureTarget")


def _by_kubernetes(seen: ApiState, reason: str, groups: Sequence[Group]) -> str:
    """Return whatever ended it that was not its own exit code."""
    if reason == "DeadlineExceeded":
        limit = objects.spec(seen.job or {}).get("activeDeadlineSeconds")
        return f"Kubernetes ended it at its deadline of {limit} s (`kubernetes.active_deadline`)"
    return "; ".join(group.sentence for group in groups[:2])


def gone(known: State | None, *, cancelled: bool) -> Outcome:
    """Return the outcome of a job that is gone. `known`: how it had ended when it was last seen."""
    if known is not None:
        return Outcome(known, None)
    if cancelled:
        return Outcome(State.CANCELLED, None)
    return Outcome(State.LOST, Exit.STOPPED, "it is no longer in the cluster: somebody deleted it")


def last_words(pods: Iterable[Json]) -> LastWords:
    """The hub's, which speaks for all; else those of gates and supervisors, and their exit codes."""
    said: list[tuple[int, LastWords]] = []
    codes: list[tuple[float, int]] = []
    for pod in pods:
        for rank, name in enumerate((HUB, TRAINER, GATE, PYTHON)):
            ended = objects.state(pod, name, "terminated")
            if not ended:
                continue
            words = _parse(str(ended.get("message") or ""))
            if words is not None:
                said.append((rank, words))
            code = (
                Exit.OUT_OF_MEMORY if ended.get("reason") == "OOMKilled" else int(ended.get("exitCode") or 0)
            )
            if name != HUB and code in _SAID and code != Exit.OK:
                codes.append((objects.at(ended.get("finishedAt")) or 0.0, code))
    said.sort(key=lambda each: each[0])
    hub = next((words for rank, words in said if rank == 0 and words.exit_code is not None), None)
    verdicts = (hub.verdicts if hub else []) or _merged(words.verdicts for _, words in said)
    code_said = (
        hub.exit_code if hub else next((words.exit_code for _, words in said if words.exit_code), None)
    )
    return LastWords(code_said if code_said is not None else min(codes, default=(0.0, None))[1], verdicts)


def _parse(message: str) -> LastWords | None:
    """None: the container ended before its agent could write."""
    try:
        body = files.parse(message)
        verdicts = codec.load(list[Verdict], body.get("verdicts", []))
        return LastWords(codec.load(int, body["exit_code"]), verdicts)
    except (ValueError, KeyError, AttributeError, codec.ContractError):
        return None


def _merged(lists: Iterable[list[Verdict]]) -> list[Verdict]:
    found: dict[tuple[str, str], Verdict] = {}
    for verdicts in lists:
        for each in verdicts:
            found.setdefault((each.code, each.sentence), each)
    return list(found.values())


def verdicts(seen: ApiState, groups: Sequence[Group]) -> list[Verdict]:
    """Return what Kubernetes knows of a job whose own hub said nothing."""
    found = [_verdict(group) for group in groups]
    first = first_failure(seen)
    if first is not None and first.is_told and not found:
        hint = "`kubectl get events` says who took it, for an hour; submit it again"
        found = [Verdict("node-evicted", f"{first.where}: {_STOPPED}", "run", nodes=[first.node], hint=hint)]
    failed = _failure(seen.job or {}) or {}
    if failed.get("reason") == "DeadlineExceeded":
        found.insert(
            0,
            Verdict(
                "node-evicted",
                _by_kubernetes(seen, "DeadlineExceeded", ()),
                "run",
                facts=[_line(failed.get("message"))],
                hint="raise `kubernetes.active_deadline`, or save checkpoints and submit it again",
            ),
        )
    return found


def _verdict(group: Group) -> Verdict:
    problem = group.problem
    if problem.verdict is not None:
        return dataclasses.replace(problem.verdict, sentence=group.sentence)
    launch = ("node-missing", "image-lacks", "launch-failed")
    return Verdict(
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
    """The job's own verdicts, with the nodes' `machines`.

    Kubernetes knows why a node never came, and sees whom no agent outlives. Where what is `known` was
    enriched before, from the job's `own`, what was explained then stands.
    """
    bare = {unplaced(each.sentence) for each in (known if own is None else own)}
    killed = [group for group in groups if group.problem.code == _KILLED]
    besides = [] if any(each.code == _KILLED for each in known) else map(_verdict, killed)
    found = [*besides]
    for each in known:
        found += _enriched(each, groups) if unplaced(each.sentence) in bare else [each]
    return placed(found, machines)


def is_silence(verdict: Verdict) -> bool:
    """Whether the hub only knew that a node said nothing."""
    return verdict.code in ("node-missing", "network-lost")


def _enriched(verdict: Verdict, groups: Sequence[Group]) -> list[Verdict]:
    if not is_silence(verdict):
        return [verdict]
    why = [group for group in groups if set(group.nodes) & set(verdict.nodes)]
    reports = [group for group in why if group.problem.verdict is not None]
    if reports and set(verdict.nodes) <= {node for group in reports for node in group.nodes}:
        return [_verdict(group) for group in reports]  # they came, and did not reach the hub
    if not why:
        return [verdict]
    facts = [group.sentence for group in why]
    return [
        dataclasses.replace(
            verdict,
            sentence=f"{verdict.sentence}: {facts[0]}",
            facts=[*facts[1:], *verdict.facts],
            hint=why[0].problem.hint or verdict.hint,
        )
    ]


def has_begun(nodes: Iterable[node_status.Node]) -> bool:
    """Whether the agent of any node speaks, or has spoken."""
    return any(each.phase != Phase.STARTING for each in nodes)


def _line(text: object) -> str:
    return " ".join(str(text or "").split())
