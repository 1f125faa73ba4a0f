"""The agent's verbs for hooks of Slurm, where there is no Slurm; the cluster's tests have the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.agent.conftest import ROOT
from tests.busy import BUSY

from ddplaunch.agent.slurm.node_hooks import OwnedProcess, kill
from ddplaunch.agent.system import proc

JOB = f"4123{os.getpid():07}"
"""More than Slurm counts to, and of this process alone: an epilog ends all processes of its job."""
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
    own, other, none = sleeper(JOB), sleeper(f"{JOB}0"), sleeper("")

    done = call(agent, "epilog", SLURM_JOB_ID=JOB, SLURM_JOB_UID=str(os.getuid()))

    assert 0 == done.returncode, done.stderr
    assert f"killing process {own.pid} of job {JOB}: " in done.stderr
    assert [-signal.SIGKILL, None, None] == [own.wait(BUSY * 5), other.poll(), none.poll()]


def test_a_process_cannot_write_lines_of_its_own_into_the_hooks_log(agent: list[str]) -> None:
    """What it calls itself stays in the line that speaks of it, and that line ends."""
    forged = "x\nremoved /etc\x1b[2J" + 1000 * "y"
    process = subprocess.Popen([forged, "60"], executable="/bin/sleep", env={"SLURM_JOB_ID": JOB})

    done = call(agent, "epilog", SLURM_JOB_ID=JOB, SLURM_JOB_UID=str(os.getuid()))

    assert -signal.SIGKILL == process.wait(BUSY * 5)
    (line,) = (line for line in done.stderr.splitlines() if "killing" in line)
    assert line.startswith(f"killing process {process.pid} of job {JOB}: x\\nremoved /etc\\x1b[2Jyyy")
    assert len(line) < 250
    assert "\nremoved /etc" not in done.stderr


def test_a_pid_that_is_another_process_by_now_is_left_alone(sleeper: Sleeper) -> None:
    """Between the look at all processes and the signal, one may have ended and its pid have gone on."""
    process = sleeper("")
    found = proc.stat(process.pid)
    assert found is not None

    kill(OwnedProcess(process.pid, 0, 0.0, found.started - 1))
    assert process.poll() is None
    kill(OwnedProcess(process.pid, 0, 0.0, found.started))

    assert -signal.SIGKILL == process.wait(BUSY * 5)


@pytest.mark.parametrize("kind", ["epilog", "prolog"])
def test_an_escaped_line_stays_escaped_in_the_log_of_slurmd(tmp_path: Path, kind: str) -> None:
    hook = tmp_path / f"{kind}.d" / "ddplaunch"
    hook.parent.mkdir()
    shutil.copy(ROOT / "slurm" / f"{kind}.d" / "ddplaunch", hook)
    (tmp_path / "agent.pyz").write_text(r"print(r'one\nline'); raise SystemExit(20)")

    done = subprocess.run([hook], env={}, capture_output=True, text=True, timeout=BUSY * 60)

    assert (1, "one\\nline\n") == (done.returncode, done.stdout)


def test_the_prolog_lets_a_sound_machine_pass(agent: list[str]) -> None:
    done = call(agent, "prolog", SLURM_JOB_ID=JOB)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_outside_of_a_job_the_prologue_prints_nothing_for_the_shell(agent: list[str]) -> None:
    done = call(agent, "prologue", PATH=os.defpath)

    assert (30, "") == (done.returncode, done.stdout)
    assert "[ddplaunch] error: not inside a job of Slurm" in done.stderr
