"""Why a node's launch command was not started, as the node itself can say."""

from __future__ import annotations

import errno
import os

import pytest

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.supervisor.ends import unlaunched_verdict

PLAN = JobPlan("trial", 1, 1, [], ["train.py"], names=["n1"])


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk-full"), (errno.EDQUOT, "disk-full"), (errno.ENOENT, "image-lacks")],
)
def test_a_full_disk_is_no_fault_of_the_image(number: int, code: str) -> None:
    """Files of the job that cannot be written for want of room; what is not there is the image's affair."""
    verdict = unlaunched_verdict(PLAN, 0, OSError(number, os.strerror(number), "/var/job/source"))

    assert (code, [0]) == (verdict.code, verdict.nodes)
    assert os.strerror(number) in verdict.sentence
