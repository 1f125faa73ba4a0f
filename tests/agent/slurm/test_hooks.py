"""The agent's verbs for hooks of Slurm, where there is no Slurm; the cluster's tests have the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Callable

import pytest
from tests.busy import BUSY

JOB = "4123456789"  # more than Slurm counts to
Sleeper = Callable[[str], "subprocess.Popen[bytes]"]


def call(agent: list[str], verb: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With nothing else in the environment, as slurmd calls its hooks."""
    return subprocess.run([*agent, verb], env=environment, capture_output=True, text=True, timeout=BUSY * 60)


@pytest.fixture(name="sleeper")
def _sleeper() -> Iterator[Sleeper]:
    """A function that starts a process of a job."""
    started = []

    def start(job: str) -> subprocess.Popen[bytes]:
        program = "import time; print(flush=True); time.sleep(60)"
        process = subprocess.Popen(
            [sys.executable, "-c", program], env={"SLURM_JOB_ID": job}, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_epilog_ends_processes_of_its_job_alone(agent: list[str], sleeper: Sleeper) -> None:
    """Not those of a job whose number begins alike, nor those of none."""
    own, other, none = sleeper(JOB), sleeper(f"{JOB}0"), sleeper("")

    done = call(agent, "epilog", SLURM_JOB_ID=JOB, SLURM_JOB_UID=str(os.getuid()))

    assert 0 == done.returncode, done.stderr
    assert f"killing process {own.pid} of job {JOB}: " in done.stderr
    assert [-signal.SIGKILL, None, None] == [own.wait(BUSY * 5), other.poll(), none.poll()]


def test_the_prolog_lets_a_sound_machine_pass(agent: list[str]) -> None:
    """It says nothing, and nothing is wrong with the machine that runs the tests."""
    done = call(agent, "prolog", SLURM_JOB_ID=JOB)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_the_prologue_refuses_outside_of_a_job(agent: list[str]) -> None:
    """What it prints for the shell is empty."""
    done = call(agent, "prologue", PATH=os.defpath)

    assert (30, "") == (done.returncode, done.stdout)
    assert "[ddplaunch] error: not inside a job of Slurm" in done.stderr
