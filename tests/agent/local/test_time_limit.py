"""A job on this machine at its time limit: real hub, gate and supervisor."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from tests.agent.local.jobs import Job
from tests.agent.local.jobs import _job as _job  # the fixture `job`

from ddplaunch.agent.contract import Exit, Files, SignalPlan

CHECKPOINTS = """
import os, pathlib, signal, sys, time
checkpoint = pathlib.Path(os.environ["DDPLAUNCH_RESUME_DIR"]) / "step"
def write(*_):
    checkpoint.write_text("7")
    print("written", flush=True)
    if len(sys.argv) > 1:
        sys.exit(int(sys.argv[1]))
if os.environ["DDPLAUNCH_ATTEMPT"] == "1":
    print("on from step", checkpoint.read_text(), flush=True)
    sys.exit()
signal.signal(signal.SIGUSR1, write)
print("it runs", flush=True)
while True:
    time.sleep(0.1)
"""
"""It writes a checkpoint at the signal, and ends with the exit code that its argument is. Then it goes on."""

SENT = r"sent USR1 to 1 rank: \d+ s before the time limit"
"""How many seconds, depends on how long a busy machine takes to start the command."""


def output(job: Job) -> str:
    """What both attempts have printed."""
    return "".join(
        (job.folder / run / "output.log").read_text()
        for run in ("run-0", "run")
        if (job.folder / run).exists()
    )


def starts(job: Job, *words: str, limit: float = 90.0, early: float = 2.0, **plan: Any) -> None:
    """Start it with a time limit, of which all but the first `early` seconds are for the handler."""
    command = [sys.executable, "-c", CHECKPOINTS, *words]
    values = {"retries": 1, "signal": SignalPlan("SIGUSR1", limit - early), **plan}
    job.start(CHECKPOINTS, command=command, time_limit=limit, **values)


def test_a_command_that_ends_after_the_signal_comes_back(job: Job) -> None:
    starts(job, "3")

    assert (job.end(), job.processes()) == (Exit.OK, [])
    assert output(job).count("[0/0] written\n") == 1
    assert "on from step 7" in output(job)
    log = (job.folder / "run-0" / "hub.log").read_text()
    assert re.search(SENT, log)
    assert "the time limit was near: retry 1 of 1" in log


@pytest.mark.whole
def test_a_command_that_goes_on_is_ended_at_the_limit_and_comes_back(job: Job) -> None:
    starts(job, limit=30.0)

    assert (job.end(), job.processes()) == (Exit.OK, [])
    assert "told to stop by the time limit of 30 s" in output(job)
    assert "on from step 7" in output(job)


def test_without_retries_the_end_at_the_limit_is_the_last(job: Job) -> None:
    starts(job, "0", retries=0)

    assert job.end() == Exit.OK
    assert re.fullmatch(SENT, job.status().signal or "")
    assert not (job.folder / "run-0").exists()


@pytest.mark.whole
def test_a_limit_without_the_key_for_it_is_never_tried_again(job: Job) -> None:
    starts(job, limit=15.0, signal=None)

    assert (job.end(), job.processes()) == (Exit.STOPPED, [])
    assert "written" not in output(job)
    assert job.status().signal is None
    assert not (job.folder / "run-0").exists()
    assert not (job.folder / Files.SIGNALLED).exists()
