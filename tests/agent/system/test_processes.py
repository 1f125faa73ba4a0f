"""Ties between processes, with real processes and real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.jobs import wait_for
from tests.busy import BUSY

from ddplaunch.agent.system import processes

PACKAGE = Path(processes.__file__).parents[3]
SLEEP = "import time; time.sleep(60)"


def gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


@pytest.fixture(name="script")
def _script(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A parent that starts a child tied to it, prints the child's pid, and waits."""
    child = (
        "import os; from ddplaunch.agent.system import processes; processes.die_with_parent(os.getppid()); "
        f"print('tied', flush=True); {SLEEP}"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_tied_child_dies_with_a_parent_that_is_killed(script: subprocess.Popen[str]) -> None:
    assert script.stdout is not None
    child = int(script.stdout.readline())

    script.kill()

    wait_for(lambda: gone(child))


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    program = f"from ddplaunch.agent.system import processes; processes.die_with_parent(1 << 22); {SLEEP}"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        timeout=BUSY * 30,
        check=False,
    )

    assert process.returncode == -signal.SIGTERM


def test_descendants_are_found_parents_first(script: subprocess.Popen[str]) -> None:
    assert script.stdout is not None
    child = int(script.stdout.readline())

    found = processes.descendants(os.getpid())

    assert [script.pid, child] == [pid for pid in found if pid in (script.pid, child)]
    assert [child] == processes.descendants(script.pid)


def test_zombies_are_no_descendants() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: gone(process.pid))

    assert process.pid not in processes.descendants(os.getpid())
    process.wait()


def test_a_grandchild_whose_parent_dies_becomes_the_adopters_child() -> None:
    middle = (
        "import subprocess, sys\n"
        f"sleeper = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True, stdout=2)\n"
        "print(sleeper.pid)\n"
    )
    program = (
        "import os, subprocess, sys\n"
        "from ddplaunch.agent.system import processes\n"
        "processes.adopt_orphans()\n"
        f"orphan = int(subprocess.check_output([sys.executable, '-c', {middle!r}]))\n"
        "print(orphan in processes.descendants(os.getpid()))\n"
        "os.kill(orphan, 9)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        check=True,
    )

    assert "True\n" == result.stdout


def test_the_agent_knows_its_python_where_there_is_no_path() -> None:
    """As behind `env -i`: then sys.executable is empty."""
    program = "import sys; from ddplaunch.agent.system import processes; print(sys.executable, end=';')"
    done = subprocess.run(
        ["python3", "-c", f"{program}; print(processes.own_command()[0])"],
        executable=sys.executable,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    known, _, python = done.stdout.strip().partition(";")

    assert "" == known
    assert os.path.samefile(python, sys.executable)
