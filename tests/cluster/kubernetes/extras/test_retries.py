"""What a JobSet starts again, by its cause: a lost machine, a hang where the job file asks, no deadline."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.training import TRAIN

pytestmark = pytest.mark.usefixtures("jobset")

HANGS = TRAIN.format(before="", step="rank == 1 and step > 5 and time.sleep(600)")
ONCE = TRAIN.format(
    before="first = os.environ['DDPLAUNCH_ATTEMPT'] == '0'",
    step="rank == 1 and step > 5 and first and time.sleep(600)\n        if step > 20: break",
)
"""It hangs in its first attempt, and succeeds in the next."""
WATCHDOG = {"notice_after": "3s", "kill_after": "10s"}
SLEEP = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize(("asked", "attempt"), [(True, 1), (False, 0)])
def test_a_hang_is_tried_again_only_where_the_job_file_asks(jobs: Jobs, asked: bool, attempt: int) -> None:
    """It hangs in each attempt; the last one's result is the job's."""
    found = jobs.becomes(submitted(jobs, "hangs", HANGS, asked=asked), "failed", seconds=400)

    assert (50, attempt) == (found["exit_code"], found["attempt"])


def submitted(jobs: Jobs, name: str, program: str, *, asked: bool = True) -> str:
    """Submit a job with one more attempt, after a hang too where it is `asked` for; return its handle."""
    keys: dict[str, Any] = {"retries": 1, "retry_hangs": asked, "watchdog": WATCHDOG}
    keys |= {"kubernetes": {"jobset": True, "run_as_user": 0}, "gate": {"skip": ["interpreter", "versions"]}}
    return jobs.submit(name, program, **keys)


def test_an_attempt_after_a_hang_may_succeed_and_the_hang_is_still_explained(jobs: Jobs) -> None:
    """Where somebody looks at the job meanwhile: `status` names both, `diagnose --attempt 0` the rank."""
    handle = submitted(jobs, "once", ONCE)
    found = jobs.becomes(handle, "succeeded", seconds=400)
    status = jobs.call("status", handle).stdout
    hang = jobs.call("diagnose", handle, "--attempt", "0", check=False).stdout

    assert (0, 1) == (found["exit_code"], found["attempt"])
    assert "attempt 1" in status.splitlines()[0]
    assert "  attempt 0: rank 1 has been in " in status
    assert "culprit     rank 1 on node 1" in hang
    assert "nothing is wrong: the job succeeded" in jobs.call("diagnose", handle).stdout


def test_an_attempt_that_nobody_attends_is_counted_and_said_to_be_unseen(jobs: Jobs) -> None:
    """The launcher is gone until the job has ended: of the hang, whose pods are gone, nothing is made up."""
    handle = submitted(jobs, "alone", ONCE)

    def state() -> str:
        found = jobs.cluster.get("jobsets", "alone", namespace=jobs.namespace)
        return str(found.get("status", {}).get("terminalState", ""))

    jobs.cluster.until(lambda: bool(state()), "the JobSet ends", 400, lambda: jobs.log("alone"))
    status = jobs.call("status", handle).stdout
    first = jobs.call("diagnose", handle, "--attempt", "0", check=False)

    assert "Completed" == state()
    assert "attempt 1" in status.splitlines()[0]
    assert "  attempt 0: no ddplaunch command followed the job to its end, and its output" in status
    assert "nothing is wrong: the job succeeded" in jobs.call("diagnose", handle).stdout
    assert 2 == first.returncode
    assert (
        "has kept nothing of an attempt 0 (no ddplaunch command followed the job to its end" in first.stderr
    )


def test_a_deadline_is_no_reason_to_start_again(jobs: Jobs) -> None:
    """The job has had its time; another attempt would have it once more."""
    options = {"jobset": True, "active_deadline": "30s"}
    handle = jobs.submit("late", SLEEP, retries=2, kubernetes=options, watchdog={"kill_after": "20s"})
    found = jobs.becomes(handle, "lost", "deadline", seconds=300)

    assert 0 == found["attempt"]


@pytest.mark.timeout(900)
def test_an_attempt_waits_until_the_pod_on_a_lost_machine_is_gone(jobs: Jobs, faults: Faults) -> None:
    """Kubernetes keeps that pod while its machine does not answer: `status` names both."""
    options = {"jobset": True, "one_per_machine": True, "run_as_user": 0}
    program = TRAIN.format(before="", step="pass")
    handle = jobs.submit("lost", program, retries=1, kubernetes=options, watchdog=WATCHDOG)
    jobs.cluster.until(lambda: "up" in jobs.log("lost"), "it trains", 240)
    label = "app.kubernetes.io/instance=lost,batch.kubernetes.io/job-completion-index=1"
    (pod,) = jobs.cluster.get("pods", namespace=jobs.namespace, selector=label)
    machine, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    faults.pause(machine)
    said = ""

    def named() -> bool:
        nonlocal said
        said = jobs.call("status", handle, check=False).stdout
        return f"{name} on {machine}" in said and "does not answer" in said and "next attempt" in said

    jobs.cluster.until(named, "status names what the next attempt waits for", 300, lambda: said)
    faults.unpause(machine)
    jobs.cluster.until(lambda: jobs.status(handle)["attempt"] == 1, "the next attempt begins", 120)
