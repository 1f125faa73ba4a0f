"""A job that passes `kubernetes.active_deadline`, which Kubernetes itself ends."""

from __future__ import annotations

import json

import pytest
from tests.cluster.kubernetes.backend.conftest import Cli, Write

from ddplaunch.agent.contract import Exit

STEPS = """\
import time
for step in range(600):
    print('step', step, flush=True)
    time.sleep(1)
"""


@pytest.mark.whole
def test_a_deadline_ends_the_job_and_every_command_names_the_key(
    cli: Cli, write: Write, namespace: str
) -> None:
    """It is no failure of the program: the ranks were told to stop, like those of a job that is cancelled."""
    deadline = {"active_deadline": "40s"}
    path = write("late", STEPS, nodes=1, kubernetes=deadline, watchdog={"kill_after": "20s"})
    code, _, said = cli("submit", path, "--to", "kubernetes", "--wait")
    handle = f"kubernetes://{namespace}/late"
    status = json.loads(cli("status", handle, "--json")[1])
    shown = cli("diagnose", handle)[1]

    words = "Kubernetes ended it at its deadline of 40 s (`kubernetes.active_deadline`)"
    assert 103 == code, said
    assert words in said
    assert ("lost", Exit.STOPPED) == (status["state"], status["exit_code"])
    assert words in status["detail"]
    assert words in shown
    assert "raise `kubernetes.active_deadline`" in shown
