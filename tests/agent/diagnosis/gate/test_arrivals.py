"""What is made of tasks that have ended before the agent ran. The runtime's lines are SingularityCE's own."""

from __future__ import annotations

import pytest

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate import arrivals
from ddplaunch.agent.platforms.scheduler_log import Ended

NAMES = ["n1", "n2"]
END = "error: container: exit code 255"


def verdict(*lines: str, of: int = 1) -> Verdict:
    """Of node 1, whose task has said this."""
    ended = Ended(1, "Exited with exit code 255", lines)
    return arrivals.ended_early([ended], NAMES, platforms.named("slurm"), arrivals.GATE, of)


@pytest.mark.parametrize(
    ("line", "told", "hint"),
    [
        (
            'FATAL:   "python3": executable file not found in $PATH',
            '"python3": executable file not found in $PATH',
            "python3 >= 3.9",
        ),
        (
            "FATAL:   While checking image: could not open image /x.sif: failed to retrieve path for /x.sif",
            "could not open image /x.sif: failed",
            "`slurm.container.image`",
        ),
        (
            "FATAL:   container creation failed: mount /a->/data error: mount source /a doesn't exist",
            "container creation failed: mount /a->/data error",
            "`slurm.container.mounts`",
        ),
        (
            "ERROR  : Failed to create user namespace: not allowed to create user namespace",
            "Failed to create user namespace: not allowed",
            "`sysctl user.max_user_namespaces`",
        ),
        (
            "ERROR  : Requesting capability set 0x1ff while permitted capability set is 0x1fe",
            "Requesting capability set",
            "`srun --nodelist=NAME`",
        ),
    ],
)
def test_a_container_that_does_not_start(line: str, told: str, hint: str) -> None:
    """The runtime's own words are the cause."""
    found = verdict("WARNING: something else", line, END)

    assert ("container-unusable", [1]) == (found.code, found.nodes)
    assert f"node 1 (n2) cannot start the job's container: {told}" in found.sentence
    assert hint in found.hint


def test_a_runtime_that_is_not_there() -> None:
    """The batch script says it."""
    found = verdict("error: container: neither apptainer nor singularity is on PATH")

    assert "node 1 (n2) cannot start the job's container: neither apptainer nor singularity is on PATH" == (
        found.sentence
    )
    assert "`slurm.constraint`" in found.hint


def test_all_nodes_cannot_start_it() -> None:
    """Then another node would not, either."""
    assert "launch-failed" == verdict("FATAL:   could not open image /x.sif", END, of=2).code


@pytest.mark.parametrize(
    "lines",
    [
        ("FATAL: disk n2 is gone", "TaskProlog failed status=1"),
        ("ValueError: in the agent itself", END),
        ("error: cannot unpack /tmp/x.tar: is /tmp full?",),
        (),
    ],
)
def test_another_end_is_no_containers(lines: tuple[str, ...]) -> None:
    """Without the batch script's line there is no container; and what is in it may fail, too."""
    assert "node-missing" == verdict(*lines).code
