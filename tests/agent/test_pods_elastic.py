"""Pods of a job that needs only some of its nodes: node 0's alone fails the Job, whatever the others find."""

from __future__ import annotations

import signal

import pytest
from tests.agent.gate.jobs import COME
from tests.agent.pods import Pod, Pods
from tests.agent.pods import _pods as _pods  # the fixture `pods`
from tests.ports import own_port

from ddplaunch.agent.contract import GATE_LEAVES, Env, Exit

RUNS = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('/GO'): time.sleep(0.1)"
THREE = {Env.NAMES: "localhost,localhost,localhost"}


def alone(pods: Pods) -> tuple[Pod, Pod]:
    """Node 0 runs without node 1, which has not come by the deadline."""
    program = RUNS.replace("/GO", str(pods.go))
    zero, one = pods.make(program, min_nodes=1, gate={"timeout": COME})
    zero.start("hub")
    assert Exit.OK == zero.start("gate").wait()
    zero.start("run").says("up")
    return zero, one


def codes(pod: Pod, verb: str) -> tuple[int, list[str]]:
    """Exit code and verdicts in the container's termination log."""
    words = pod.last_words(verb)
    return words["exit_code"], [each["code"] for each in words["verdicts"]]


@pytest.mark.whole
def test_a_pod_that_comes_late_ends_well_and_says_why(pods: Pods) -> None:
    """Its containers end with 0, so that it fails no Job; the job goes on, and succeeds."""
    zero, one = alone(pods)
    gate = one.start("gate")

    assert Exit.OK == gate.wait()
    assert (Exit.NODE_AT_FAULT, ["node-missing"]) == codes(one, "gate")
    assert "came when the job had gone on without it" in gate.output
    run = one.start("run")
    assert Exit.OK == run.wait()
    assert "node 1 has nothing to run: it has not passed its gate, which says why" in run.output
    pods.go.touch()
    assert Exit.OK == zero.containers["run"].wait()
    zero.containers["hub"].says("END DDPLAUNCH BUNDLE")
    assert (Exit.OK, []) == (zero.bundle().exit_code, zero.bundle().verdicts)


@pytest.mark.whole
def test_a_pod_that_does_not_reach_the_hub_fails_no_job(pods: Pods) -> None:
    """It cannot know whether the others go on; its verdict is in its termination log."""
    zero, one = alone(pods)
    assert Exit.OK == one.start("gate", **{Env.HUB: f"127.0.0.1:{own_port()}"}).wait()
    assert (Exit.MISCONFIGURED, ["master-is-loopback"]) == codes(one, "gate")
    assert Exit.OK == one.start("run").wait()
    pods.go.touch()
    assert Exit.OK == zero.containers["run"].wait()


def test_node_zero_fails_the_job_for_all(pods: Pods) -> None:
    """Too few have come: its gate has the verdict's exit code, and so the Job has it."""
    zero, _ = pods.make(min_nodes=2, nodes=3, gate={"timeout": COME})
    zero.start("hub", **THREE)

    assert Exit.NODE_AT_FAULT == zero.start("gate", **THREE).wait()
    assert (Exit.NODE_AT_FAULT, ["node-missing"]) == codes(zero, "gate")


@pytest.mark.whole
def test_a_pod_that_is_deleted_at_the_gate_is_not_at_fault(pods: Pods) -> None:
    """It leaves when it is asked to, with a code by which Kubernetes gives it another pod."""
    zero, one = pods.make("print('up', flush=True)", min_nodes=1, nodes=3, gate={"timeout": 20.0})
    zero.start("hub", **THREE)
    first = zero.start("gate", **THREE)
    one.start("gate", **THREE).says("waiting for node 2")
    one.signal("gate", signal.SIGTERM)

    assert GATE_LEAVES == one.containers["gate"].wait(5)
    assert (Exit.STOPPED, []) == codes(one, "gate")
    assert Exit.OK == first.wait(60)
    assert "the job goes on without nodes 1" in zero.containers["hub"].output
