"""How a job ended, and when that is said; test_recorded.py has real objects."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.backends.kubernetes.deciding_pods import ENDED, RUNS, at, pod

from ddplaunch.agent.contract import Exit
from ddplaunch.backends.job import LINGER, Outcome, State
from ddplaunch.backends.kubernetes import node_status, objects, outcomes
from ddplaunch.backends.kubernetes.queries import ApiState

OUTSIDE = "node 0 (pod low-0-nb87m): stopped from outside, not by `ddplaunch cancel`"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Outcome(State.LOST, 60, OUTSIDE), (State.CANCELLED, 60, "by `ddplaunch cancel`")),
        (Outcome(State.LOST, None, OUTSIDE), (State.CANCELLED, None, "by `ddplaunch cancel`")),
        (Outcome(State.FAILED, 40, ""), (State.FAILED, 40, "")),
        (Outcome(State.SUCCEEDED, 0), (State.SUCCEEDED, 0, "")),
    ],
)
def test_ones_own_cancel_is_not_from_outside(found: Outcome, told: tuple[State, int | None, str]) -> None:
    """Also where the command that asked for it did not live to see the end."""
    known = outcomes.as_cancelled(found)

    assert told == (known.state, known.exit_code, known.detail)


SAID = "Container trainer for pod lab/d-0-x failed with exit code 20 matching FailJob rule at index 1"


def job(*pods: dict[str, Any], kind: str = "FailureTarget") -> ApiState:
    """Of which the controller has decided that it fails."""
    condition = {"type": kind, "status": "True", "reason": "PodFailurePolicy", "message": SAID}
    status = {"conditions": [{**condition, "lastTransitionTime": at(ENDED - 1)}]}
    owner = {
        "metadata": {"name": "d", "labels": dict(objects.OURS)},
        "spec": {"completions": 2},
        "status": status,
    }
    return ApiState("lab", "d", owner, owner, pods)


def hub_ended(finished: float = ENDED) -> dict[str, Any]:
    """Node 0's pod, after its hub's last word."""
    end = {"terminated": {"exitCode": 20, "finishedAt": at(finished)}}
    return pod(0, hub=end, trainer=end)


def test_the_result_is_shown_seconds_after_the_hubs_last_word() -> None:
    """Not at once, for most pods end in that time; nor with the last pod, for it may never go."""
    state = job(hub_ended(), pod(1, trainer=RUNS))

    assert outcomes.outcome(state, ENDED + LINGER - 1) is None
    outcome = outcomes.outcome(state, ENDED + LINGER)
    assert outcome is not None
    assert (State.FAILED, Exit.NODE_AT_FAULT) == (outcome.state, outcome.exit_code)


def test_a_hub_that_still_speaks_is_waited_for() -> None:
    """The first pod that fails decides the end of the job; why it ends, the hub says later."""
    state = job(pod(0, hub=RUNS, trainer=RUNS), pod(1, trainer={"terminated": {"exitCode": 20}}))

    assert outcomes.outcome(state, ENDED + 60) is None


def test_a_hub_on_a_machine_that_does_not_answer_is_not_waited_for() -> None:
    """It may have no last word."""
    state = job(pod(0, ready=False, hub=RUNS, trainer=RUNS), pod(1, trainer={"terminated": {"exitCode": 20}}))

    assert outcomes.outcome(state, ENDED + 60) is not None


def test_what_is_left_is_named_with_its_machine() -> None:
    """A pod on a machine that does not answer, and one that only takes its time."""
    lost, slow = job(hub_ended(), pod(1, ready=False, trainer=RUNS)), job(hub_ended(), pod(1, trainer=RUNS))
    assert lost.job is not None

    left = [
        node_status.left(node_status.nodes(lost.job, state.pods, []), state.pods) for state in (lost, slow)
    ]
    assert [
        "node 1 (pod d-1-x on w2): cannot be deleted while the machine does not answer",
        "node 1 (pod d-1-x on w2): still ending",
    ] == left


def test_a_job_whose_pods_have_all_gone_leaves_nothing() -> None:
    """Failed is only said then."""
    state = job(hub_ended(), kind="Failed")

    assert not outcomes.lingers(state, ENDED + 60)
    assert outcomes.outcome(state, ENDED) is not None
