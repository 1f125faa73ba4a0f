"""Pods of a job that ddplaunch did not start: how each is asked, and what all of them show together."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.backends.kubernetes.asked_pods import ABSENT, JOB, Cluster, Pod, add, evidence, statuses

from ddplaunch import api
from ddplaunch.agent.contract import Bundle, Phase, Process
from ddplaunch.backends import foreign_jobs
from ddplaunch.backends.job import State
from ddplaunch.backends.kubernetes import foreign_evidence
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.foreign_evidence import Answer
from ddplaunch.backends.kubernetes.foreign_pods import parse
from ddplaunch.errors import ClusterError, UsageError
from ddplaunch.render import archive
from ddplaunch.report.machine import diagnosis_data
from ddplaunch.report.verdict import diagnosis_text


def test_py_spy_comes_where_it_is_wanted(cluster: type[Cluster]) -> None:
    """Before the agent, and to no other pod: a pod of many is told apart by what it prints first."""
    without = add(cluster, "llm-0-abc", Pod(evidence(0), wants="py-spy"))
    with_it = add(cluster, "llm-1-xyz", Pod(evidence(1)))

    api.diagnose(JOB)

    agent, spy = archive.agent_archive(), foreign_jobs.packed_py_spy()
    assert (spy.packed + agent, agent) == (without.got, with_it.got)
    assert len(spy.packed) > 1_000_000


@pytest.mark.timeout(30)
def test_all_pods_are_asked(cluster: type[Cluster]) -> None:
    """The whole agent comes into each through standard input; the pods' names are the nodes'."""
    first = add(cluster, "llm-0-abc", Pod(evidence(0)), "pytorch", "istio-proxy")
    second = add(cluster, "llm-1-xyz", Pod(evidence(1)))

    found = api.diagnose(JOB)

    assert [archive.agent_archive()] * 2 == [first.got, second.got]
    assert ["pytorch", "main"] == [first.container, second.container]
    assert ["look", "--all"] == first.words[-2:]
    assert [(0, "llm-0-abc"), (1, "llm-1-xyz")] == [
        (each["node"], each["host"]) for each in diagnosis_data(found)["nodes"]
    ]
    assert (JOB, State.RUNNING, "llm") == (str(found.job.handle), found.job.state, found.job.name)
    assert found.evidence is not None
    assert ([0, 1], []) == (
        [rank.rank for node in found.evidence.evidence for rank in node.ranks],
        found.evidence.silent,
    )
    assert ["llm-0-abc", "llm-1-xyz"] == found.evidence.names


@pytest.mark.timeout(30)
def test_a_pod_without_python_is_named_as_unseen(cluster: type[Cluster]) -> None:
    """It is named as unseen at once, with the reason; nothing is concluded from it."""
    add(cluster, "llm-0-abc", Pod(evidence(0)))
    add(cluster, "llm-1-xyz", Pod(fails=ABSENT))
    began = time.monotonic()

    found = api.diagnose(JOB)

    assert time.monotonic() - began < 10
    text = diagnosis_text(found)
    assert "unseen      pod llm-1-xyz: no answer: its image has no python3" in text
    assert "--debug-image IMAGE adds a container" in text
    assert "of 1 rank on 1 node\n" in text
    assert "in time" not in text
    assert found.evidence is not None
    assert [1] == found.evidence.silent
    assert "did not answer" not in text


@pytest.mark.timeout(30)
def test_pods_without_python_give_nothing_to_diagnose(cluster: type[Cluster]) -> None:
    add(cluster, "llm-0-abc", Pod(fails=ABSENT))

    with pytest.raises(ClusterError, match="no pod of Job llm in namespace team could be looked at: llm-0"):
        api.diagnose(JOB)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_run_commands(cluster: type[Cluster], status: int) -> None:
    """The rule that is missing is named, and the server's words."""
    add(cluster, "llm-0-abc", Pod(status=status))

    with pytest.raises(ClusterError, match="may not run a command in the pods of namespace team") as raised:
        api.diagnose(JOB)

    assert 'User "ann" cannot get resource "pods/exec"' in raised.value.message
    assert '{apiGroups: [""], resources: [pods/exec], verbs: [get, create]}' in raised.value.hint


@pytest.mark.timeout(30)
def test_a_machine_that_does_not_answer(cluster: type[Cluster]) -> None:
    """The server says so of one pod; the others count."""
    add(cluster, "llm-0-abc", Pod(evidence(0)))
    add(cluster, "llm-1-xyz", Pod(status=500))

    found = api.diagnose(JOB)

    assert found.evidence is not None
    assert [1] == found.evidence.silent
    assert "pod llm-1-xyz: no answer: User" in diagnosis_text(found)


@pytest.mark.timeout(30)
def test_a_pod_that_takes_too_long(cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_evidence, "_LIMIT", 0.5)
    add(cluster, "llm-0-abc", Pod(evidence(0)))
    slow = Pod(evidence(1))
    add(cluster, "llm-1-xyz", slow)
    monkeypatch.setattr(cluster, "received", _held_up(cluster.received, slow))

    found = api.diagnose(JOB)

    assert "pod llm-1-xyz: no answer: nothing came within" in diagnosis_text(found)


def _held_up(received: Any, slow: Pod) -> Any:
    def wait(self: Cluster) -> bytes:
        if self.path.find("llm-1-xyz") >= 0 and slow.got:
            time.sleep(1.5)
        return bytes(received(self))

    return wait


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("phases", "state", "text"),
    [
        (("Pending", "Pending"), State.PENDING, "no verdict: the job is pending; none of its pods runs: "),
        (("Succeeded", "Succeeded"), State.SUCCEEDED, "nothing is wrong: the job succeeded"),
        (("Succeeded", "Failed"), State.FAILED, "no verdict: the job failed; none of its pods runs: "),
        (("Failed", "Pending"), State.PENDING, "pod llm-0: failed; pod llm-1: pending"),
    ],
)
def test_pods_that_do_not_run_are_not_asked(
    cluster: type[Cluster], phases: tuple[str, ...], state: State, text: str
) -> None:
    """None is asked, and what they do is what is known."""
    for number, phase in enumerate(phases):
        add(cluster, f"llm-{number}", Pod(), phase=phase)

    found = api.diagnose(JOB)

    assert (state, None) == (found.job.state, found.bundle)
    assert text in diagnosis_text(found)


# --- what they show together


def answer(number: int, *ranks: int, **more: Any) -> Answer:
    """Of a pod with these ranks."""
    machine = f"worker{number}"
    return Answer(f"llm-{number}", machine, evidence(*ranks, **more) if ranks else None)


def merged(*pods: Answer) -> Bundle:
    return foreign_evidence.merged(parse("team/job/llm"), pods, 0.0)


def test_pods_that_have_ended_are_left_out_where_every_rank_is_there() -> None:
    """As those of an earlier try, and the launcher of MPI: the nodes are those with ranks."""
    old = Answer("llm-9", "", None, "failed (exit code 1)", Phase.ENDED)

    found = merged(old, answer(0, 0), answer(1, 1)).evidence

    assert found is not None
    assert (2, ["llm-0", "llm-1"], []) == (found.nodes, found.names, [*found.evidence[0].missing])
    assert [0, 1] == [node.node for node in found.evidence]


def test_a_pod_that_has_failed_while_others_wait() -> None:
    """What is known of it is shown, and which rank ran there is not guessed."""
    old = Answer("llm-1", "worker1", None, "failed (exit code 1)", Phase.ENDED)

    made = merged(answer(0, 0), old)

    found = made.evidence
    assert found is not None
    assert (2, ["pod llm-1: failed (exit code 1)"], []) == (
        found.nodes,
        found.evidence[1].missing,
        found.silent,
    )
    assert all(verdict.ranks == [] for verdict in made.verdicts)
    facts = [fact for verdict in made.verdicts for fact in verdict.facts]
    assert not any("started no worker" in fact for fact in facts), facts
    assert all(
        "1 of 2 ranks seen; rank 1 has not started, or runs where" in each.sentence for each in made.verdicts
    )


def test_a_reason_of_many_pods_stands_there_once() -> None:
    silent = [Answer(f"llm-{number}", "", None, "no answer: x", silent=True) for number in range(1, 9)]

    found = merged(answer(0, 0, size=9), *silent[:2]).evidence
    many = merged(answer(0, 0, size=9), *silent).evidence

    assert found is not None
    assert many is not None
    assert ["pods llm-1 and llm-2: no answer: x"] * 2 == [node.missing[0] for node in found.evidence[1:]]
    assert {"8 pods, such as llm-1: no answer: x"} == {node.missing[0] for node in many.evidence[1:]}


def test_two_pods_with_one_rank_are_two_jobs() -> None:
    """A selector may match several jobs; the ranks of one are not judged by those of another."""
    with pytest.raises(UsageError, match=r"rank 0 runs in two pods of Job llm .*, llm-0 and llm-1"):
        merged(answer(0, 0), answer(1, 0))


def test_two_groups_of_a_leaderworkerset() -> None:
    """They are two jobs, and the hint has the labels of one."""
    with pytest.raises(UsageError, match="rank 0 runs in two pods of LeaderWorkerSet llm") as raised:
        foreign_evidence.merged(parse("team/lws/llm"), [answer(0, 0), answer(1, 0)], 1.0)

    labels = "leaderworkerset.sigs.k8s.io/name=llm,leaderworkerset.sigs.k8s.io/group-index=0"
    assert f"name one of its groups: 'kubernetes://team?selector={labels}'" == raised.value.hint


def test_the_machine_of_the_culprit_is_named() -> None:
    """Beside its pod, where the sentence names a node."""
    first, second = answer(0, 0), answer(1, 1)
    assert second.evidence is not None
    stopped = replace(second.evidence.ranks[0], process=Process(7, "T"))
    second = second._replace(evidence=replace(second.evidence, ranks=[stopped]))

    (verdict,) = merged(first, second).verdicts

    assert ("rank-stopped", [1]) == (verdict.code, verdict.ranks)
    assert "node 1 (llm-1 on worker1)" in verdict.sentence


def test_the_pods_containers_that_run(cluster: type[Cluster]) -> None:
    """One whose container is about to be started again is not asked."""
    add(cluster, "llm-0", Pod(evidence(0)))
    add(cluster, "llm-1", Pod(), containerStatuses=statuses(waiting={"reason": "CrashLoopBackOff"}))

    text = diagnosis_text(api.diagnose(JOB))

    assert "unseen      pod llm-1: its container main waits (CrashLoopBackOff) (node 1)" in text


@pytest.mark.timeout(30)
def test_a_job_that_is_named_as_one_of_ours(cluster: type[Cluster]) -> None:
    """Its object says what it is; one without pods has no evidence."""
    job = {"kind": "Job", "metadata": {"name": "llm"}}

    assert foreign_evidence.of_owner(Api(), "team", job) is None
    add(cluster, "llm-0-abc", Pod(evidence(0)))
    bundle = foreign_evidence.of_owner(Api(), "team", job)

    assert bundle is not None
    assert bundle.evidence is not None
    assert ["llm-0-abc"] == bundle.evidence.names
