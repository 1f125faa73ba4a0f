"""Pods that come while the job runs: the others make room, and all pass the gate together."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from tests.agent.gate.jobs import COME
from tests.agent.pods import Pod, Pods
from tests.agent.pods import _pods as _pods  # the fixture `pods`

from ddplaunch.agent.contract import Exit

COUNTS = """\
import os, signal, sys, time
def last(*_):
    print("checkpoint", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
print("attempt", os.environ["DDPLAUNCH_ATTEMPT"], "of", sys.argv[1:], flush=True)
while not os.path.exists("GO"):
    sum(range(400_000))  # it trains: who only waits for a file does nothing, and newcomers wait for calm
    time.sleep(0.02)
"""
GATE = {"timeout": COME}


def alone(pods: Pods, **plan: Any) -> tuple[Pod, Pod]:
    """Node 0 runs without node 1, which has not come by the deadline."""
    zero, one = pods.make(
        COUNTS.replace("GO", str(pods.go)), min_nodes=1, newcomers=True, gate=GATE, resume_args=["-r"], **plan
    )
    zero.start("hub")
    assert Exit.OK == zero.start("gate").wait()
    zero.start("run").says("attempt 0 of []")
    return zero, one


def ended_well(pods: Pods, *which: Pod) -> None:
    """The job is told to end, and does, with code 0 of all containers."""
    pods.go.touch()
    assert [Exit.OK] * len(which) == [pod.containers["run"].wait(60) for pod in which]


def test_a_pod_that_comes_late_is_let_in(pods: Pods) -> None:
    """The ranks write a checkpoint, all go through the gate, and begin again as the next attempt."""
    zero, one = alone(pods)
    gate = one.start("gate")
    gate.says("the job runs, and stops for newcomers when it can")

    assert Exit.OK == gate.wait(60), gate.output
    run = zero.containers["run"]
    run.says("checkpoint")
    run.says("attempt 1 of ['-r']")
    one.start("run").says("attempt 1 of ['-r']")
    ended_well(pods, zero, one)
    hub = zero.containers["hub"]
    hub.says("all ranks have finished")
    assert "the job stops, with time for a checkpoint, and goes on with node 1" in hub.output
    assert 1 == run.output.count("attempt 0 of")  # what the first attempt printed is not printed again


@pytest.mark.whole
def test_a_newcomer_that_dies_costs_the_others_only_the_pause(pods: Pods) -> None:
    """It is killed when the attempt has been ended for it: the job goes on as it was."""
    zero, one = alone(pods)
    one.start("gate").says("the job runs, and stops for newcomers when it can")
    zero.containers["run"].says("newcomers can join")
    one.signal("gate", signal.SIGKILL)

    zero.containers["run"].says("attempt 1 of ['-r']")
    assert "the job goes on without node 1" in zero.containers["hub"].output
    ended_well(pods, zero)
    assert "found nothing" not in zero.containers["hub"].output
