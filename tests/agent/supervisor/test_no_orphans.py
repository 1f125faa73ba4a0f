"""Nothing outlives the supervisor, whatever is killed first; with processes that do all to stay."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Callable, cast

import pytest
from tests.agent.supervisor.conftest import Node, wait_for

from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.reaper import Outer
from ddplaunch.agent.supervisor.signal_relay import SignalRelay

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # a daemon, as some loggers start one
        open(f"daemon-{os.environ['RANK']}", "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
open(f"worker-{os.environ['RANK']}", "w").write(str(os.getpid()))
time.sleep(300)
"""


def parent(pid: int) -> int:
    """Its parent's pid."""
    return int(stat(pid)[1])


def stat(pid: int) -> list[str]:
    """State, parent, and what else /proc says behind a process's name."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def pid_in(path: Path) -> int:
    """The pid that a program writes there."""
    return int(wait_for(lambda: path.exists() and path.read_text(), what=f"{path.name}"))


VICTIMS: dict[str, Callable[[Node, int], int]] = {
    "worker": lambda node, worker: worker,
    "launcher": lambda node, worker: parent(worker),
    "supervisor": lambda node, worker: parent(parent(worker)),
    "guardian": lambda node, worker: parent(parent(parent(worker))),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_outlives_a_sigkill_of_any_process_of_the_chain(node: Node, victim: str) -> None:
    node.launch(STUBBORN, ranks=2)
    for rank in (0, 1):
        pid_in(node.folder / f"daemon-{rank}")
    pid = VICTIMS[victim](node, pid_in(node.folder / "worker-0"))
    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not node.living(), what=f"the end of {node.living()}")


@pytest.mark.parametrize("launcher_stopped", [False, True])
def test_nothing_outlives_guardian_and_supervisor_killed_together(node: Node, launcher_stopped: bool) -> None:
    node.launch(STUBBORN.replace("if os.fork() == 0:", "if False:", 1), ranks=2)
    worker = pid_in(node.folder / "worker-0")
    pid_in(node.folder / "worker-1")
    victims = [VICTIMS[name](node, worker) for name in ("guardian", "supervisor")]
    if launcher_stopped:  # as the supervisor does for a moment when a rank dies
        launcher = VICTIMS["launcher"](node, worker)
        os.kill(launcher, signal.SIGSTOP)
        wait_for(lambda: stat(launcher)[0] == "T")
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)  # so that neither can react to the other's death
    for pid in victims:
        os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not node.living(), what=f"the end of {node.living()}")


def test_nothing_outlives_the_host(node: Node) -> None:
    host = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([*sys.argv[1:], '--die-with-parent=%d' % os.getpid()]).wait()"
    )
    polite = "\n".join(line for line in STUBBORN.splitlines() if "SIG_IGN" not in line)
    process = node.launch(polite, ranks=2, before=[sys.executable, "-c", host])
    for rank in (0, 1):
        pid_in(node.folder / f"daemon-{rank}")
    process.send_signal(signal.SIGKILL)

    wait_for(lambda: not node.living(), 50, what=f"the end of {node.living()}")


def test_a_leftover_of_a_good_run_is_ended(node: Node) -> None:
    leaves = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
    node.launch(leaves, ranks=1)

    assert node.exit_code() == 0
    assert node.living() == {}


def test_a_stopped_launcher_is_ended_too(node: Node) -> None:
    node.launch(STUBBORN, ranks=1)
    worker = pid_in(node.folder / "worker-0")
    launcher, supervisor = parent(worker), parent(parent(worker))
    os.kill(launcher, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)

    wait_for(lambda: not node.living(), what=f"the end of {node.living()}")


def test_as_pid_1_it_buries_zombies_and_obeys_sigterm(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a PID namespace needs root")
    zombies = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(0)
    os.wait()
time.sleep(2)
open("zombies", "w").write(" ".join(
    p for p in filter(str.isdigit, os.listdir("/proc"))
    if open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[0] == "Z"))
time.sleep(300)
"""
    process = node.launch(zombies, ranks=1, before=["unshare", "--pid", "--fork", "--mount-proc"])
    wait_for((node.folder / "zombies").exists)

    assert (node.folder / "zombies").read_text() == ""
    inner = next(pid for pid in node.living() if parent(pid) == process.pid)
    os.kill(inner, signal.SIGTERM)
    assert node.exit_code() == 60
    with contextlib.suppress(ProcessLookupError):
        wait_for(lambda: not node.living())


def test_an_outer_process_is_gone_when_its_pipe_has_ended(tmp_path: Path) -> None:
    """While it dies it still is our parent, and nobody has asked for our end: the hub must not hear so."""
    pipe, writer = os.pipe()
    os.set_blocking(pipe, False)
    tracker = cast(RankTracker, None)  # nothing has been launched yet
    relay = SignalRelay(LaunchContext(str(tmp_path), 0), Outer(os.getppid(), pipe), tracker)
    relay.read()
    assert not relay.is_alone

    os.close(writer)
    relay.read()
    os.close(pipe)

    assert relay.is_alone
