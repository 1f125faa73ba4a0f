"""A job of a range of nodes, as its objects in the API tell of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.backends.kubernetes.gate_jobs import verdict

from ddplaunch.agent.contract import Exit, Phase, Verdict, codec
from ddplaunch.backends.job import State
from ddplaunch.backends.kubernetes import evidence, node_status, objects, outcomes, submission
from ddplaunch.backends.kubernetes.queries import ApiState
from ddplaunch.errors import ClusterError

ELASTIC = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
NO_ROOM = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}


def job(*conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    """Its Job, of three nodes."""
    return {
        "kind": "Job",
        "metadata": {"name": "range", "uid": "u"},
        "spec": {"completions": 3, **ELASTIC, **spec},
        "status": {"conditions": [{"status": "True", **each} for each in conditions]},
    }


def pod(node: int, phase: str = "Running", **status: Any) -> dict[str, Any]:
    """A pod without a container that has begun."""
    labels = {objects.INDEX: f"{node}"}
    made = {"name": f"range-{node}-x", "uid": f"{node}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {**made, "labels": labels}, "spec": {}, "status": {"phase": phase, **status}}


def ended(gate: int, words: int, verdicts: list[Verdict], **trainer: Any) -> dict[str, Any]:
    """The status of a pod whose gate has ended with the code `gate`, and left `words` and verdicts."""
    message = json.dumps({"exit_code": words, "verdicts": codec.dump(verdicts)})
    state = {"terminated": {"exitCode": gate, "message": message, "finishedAt": "2026-01-01T00:01:00Z"}}
    return {
        "initContainerStatuses": [{"name": "gate", "state": state}],
        "containerStatuses": [{"name": "trainer", "state": trainer}],
    }


RUNS = ended(0, 0, [], running={"startedAt": "2026-01-01T00:01:01Z"})
LEFT_OUT = ended(0, 20, [verdict(1)], terminated={"exitCode": 0, "finishedAt": "2026-01-01T00:01:02Z"})
PENDING = pod(2, "Pending", conditions=[NO_ROOM])


def test_a_node_that_did_not_pass_is_told_from_one_that_did() -> None:
    """Both gates ended with 0. One that failed for a job of a fixed size left its code in both places."""
    assert (True, False) == (node_status.has_passed(pod(0, **RUNS)), node_status.is_left_out(pod(0, **RUNS)))
    late = pod(1, **LEFT_OUT)
    assert (False, True) == (node_status.has_passed(late), node_status.is_left_out(late))
    failed = pod(1, **ended(20, 20, [verdict(1)]))
    assert (False, False) == (node_status.has_passed(failed), node_status.is_left_out(failed))
    assert (False, False) == (node_status.has_passed(PENDING), node_status.is_left_out(PENDING))


def test_the_nodes_that_it_goes_on_without_are_no_trouble() -> None:
    """One did not pass, one waits for room that never comes: neither is a problem of the job that runs."""
    found = node_status.nodes(job(), [pod(0, **RUNS), pod(1, "Succeeded", **LEFT_OUT), PENDING], [])

    assert [] == node_status.troubled(found)
    assert [(Phase.RUNNING, ""), (Phase.ENDED, "it did not pass its gate")] == [
        (each.phase, each.does) for each in found[:2]
    ]
    assert (Phase.STARTING, "the job goes on without it") == (found[2].phase, found[2].does)
    assert [None] * 3 == [each.exit_code for each in found]


def test_until_the_others_have_started_a_missing_node_is_told() -> None:
    """They wait for it, up to the gate's timeout."""
    at_gate = pod(0, initContainerStatuses=[{"name": "gate", "state": {"running": {}}}])
    (group,) = node_status.troubled(node_status.nodes(job(), [at_gate, PENDING], []))

    assert ([2], "node-missing") == (group.nodes, group.problem.code)


def test_a_node_of_a_fixed_number_is_told_always() -> None:
    """Nothing goes on without it."""
    fixed = {**job(), "spec": {"completions": 3}}
    (group,) = node_status.troubled(node_status.nodes(fixed, [pod(0, **RUNS), PENDING], []))

    assert [2] == group.nodes


def test_a_member_that_was_evicted_is_told() -> None:
    """Its pod is gone or going; it is none of those that never came."""
    reason = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    found = node_status.nodes(job(), [pod(0, **RUNS), pod(1, conditions=[reason], **RUNS)], [])

    assert ["node-evicted"] == [each.problem.code for each in found if each.problem]


def test_the_verdict_of_a_node_that_was_left_out_is_not_the_jobs() -> None:
    """The job failed for another reason, by node 0; without its words, the other's are no explanation."""
    failed = {"type": "Failed", "reason": "PodFailurePolicy", "message": ""}
    one = pod(1, "Succeeded", **LEFT_OUT)
    state = ApiState("lab", "range", job(failed), job(failed), (pod(0, "Failed", **ended(20, 20, [])), one))

    assert (Exit.NODE_AT_FAULT, []) == outcomes.termination_message(state.pods)
    assert (None, []) == outcomes.termination_message([one])


def test_a_job_whose_gate_nobody_passed_has_not_trained() -> None:
    """The trainer's container of a node that was left out ends, and has run nothing."""
    assert not node_status.gate_passed([pod(1, "Succeeded", **LEFT_OUT)])
    assert node_status.gate_passed([pod(1, "Succeeded", **LEFT_OUT), pod(0, **RUNS)])


def test_a_gate_that_was_left_out_is_listened_to() -> None:
    """It may not have reached the hub, and its log says why."""
    pods = (pod(0, **RUNS), pod(1, "Succeeded", **LEFT_OUT))
    state = ApiState("lab", "range", job(), job(), pods)

    assert [pods[1]] == evidence.failed_gates(state, {0, 1, 2})
    assert {1} == evidence.not_reaching_hub({0, 1}, state, None)


def test_it_has_succeeded_when_node_zero_has() -> None:
    """Kubernetes deletes the pods that still wait."""
    done = {"type": "Complete", "reason": "SuccessPolicy", "lastTransitionTime": "2026-01-01T00:09:00Z"}
    found = outcomes.outcome(ApiState("lab", "range", job(done), job(done), ()), 0.0)

    assert found is not None
    assert (State.SUCCEEDED, Exit.OK) == (found.state, found.exit_code)


class Old:
    """An API server of some version."""

    def __init__(self, minor: str) -> None:
        self._minor = minor

    def get(self, path: str, doing: str) -> dict[str, str]:
        """Its version."""
        assert ("/version", "tell its version") == (path, doing)
        return {"major": "1", "minor": self._minor, "gitVersion": f"v1.{self._minor}.1"}


@pytest.mark.parametrize("jobset", [False, True])
def test_a_cluster_that_would_drop_the_policy_is_refused(jobset: bool) -> None:
    """It would wait for all pods, in silence; a job of a fixed number is fine there."""
    owners = {}
    for name, one in (("range", job()), ("fixed", {**job(), "spec": {"completions": 3}})):
        whole = {"kind": "JobSet", "spec": {"replicatedJobs": [{"template": one}]}}
        owners[name] = whole if jobset else one
    with pytest.raises(ClusterError, match=r"v1\.30\.1; a range of nodes needs 1\.31"):
        submission._refuse_old_server(Old("30"), owners["range"])  # type: ignore[arg-type]
    for minor, name in (("31", "range"), ("33+", "range"), ("30", "fixed")):
        submission._refuse_old_server(Old(minor), owners[name])  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=r"v1\.28\.1; a job needs 1\.29"):
        submission._refuse_old_server(Old("28"), owners["fixed"])  # type: ignore[arg-type]
