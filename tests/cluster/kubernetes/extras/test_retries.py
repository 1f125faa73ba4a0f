"""What a JobSet starts again, by its cause: a lost machine, a hang where the job file asks, no deadline."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.extras.conftest import Jobs
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.training import TRAIN

pytestmark = pytest.mark.usefixtures("jobset")

HANGS = TRAIN.format(before="", step="rank == 1 and step > 5 and time.sleep(600)")
WATCHDOG = {"notice_after": "3s", "kill_after": "10s"}
SLEEP = "import time\nprint('training', flush=True)\ntime.sleep(600)\n"


@pytest.mark.parametrize(("asked", "attempt"), [(True, 1), (False, 0)])
def test_a_hang_is_tried_again_only_where_the_job_file_asks(jobs: Jobs, asked: bool, attempt: int) -> None:
    """It hangs in each attempt; the last one's result is the job's."""
    options = {"jobset": True, "run_as_user": 0}
    gate = {"skip": ["interpreter", "versions"]}
    handle = jobs.submit(
        "hangs", HANGS, retries=1, retry_hangs=asked, watchdog=WATCHDOG, kubernetes=options, gate=gate
    )
    found = jobs.becomes(handle, "failed", seconds=400)

    assert (50, attempt) == (found["exit_code"], found["attempt"])


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
    (pod,) = jobs.cluster.get("pods", "-n", jobs.namespace, f"--selector={label}")
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
