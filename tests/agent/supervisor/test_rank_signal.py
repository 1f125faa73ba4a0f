"""The job file's signal, as a node gives it to its ranks: real processes, with and without a handler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.agent.supervisor.conftest import wait_for

from ddplaunch.agent.contract import JobPlan, SignalPlan
from ddplaunch.agent.contract.messages import Signalled
from ddplaunch.agent.supervisor import signal_relay
from ddplaunch.agent.supervisor.signal_relay import RankSignal

COUNTS = """
import pathlib, signal, sys, time
got = 0
def handle(*_):
    global got
    got += 1
    pathlib.Path(sys.argv[1]).write_text(str(got))
if len(sys.argv) > 2:
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.01)
signal.signal(signal.SIGUSR1, handle)
pathlib.Path(sys.argv[1]).write_text("0")
while True:
    time.sleep(0.1)
"""
"""It counts its signals into a file, from when another file is there, if it is told of one."""


WAITS = """
import signal, threading
numbers = {signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print(flush=True)
thread = threading.Thread(target=signal.sigwait, args=(numbers,))
thread.start()
thread.join()
"""
"""It ends well once it has the signal."""


class Node:
    """A node with ranks of this test's, and what it reports."""

    def __init__(self, folder: Path, **plan: Any) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.tracker: Any = SimpleNamespace(alive=[], launch=None, launch_exit=None)
        self.reports: list[Signalled] = []
        self.said: list[str] = []
        self.plan = JobPlan("job", 1, 2, [], [], signal=SignalPlan("SIGUSR1", 60.0), **plan)
        self.signal = RankSignal(self.plan, cast(Any, self.tracker), self.reports.append, self.said.append)

    def starts(self, number: int, *words: str) -> subprocess.Popen[bytes]:
        """Start a rank."""
        command = [sys.executable, "-c", COUNTS, str(self.folder / str(number)), *words]
        process = subprocess.Popen(command)
        self.processes.append(process)
        self.tracker.alive.append(SimpleNamespace(program=process.pid, number=number, placeholder=False))
        if not words:
            wait_for(lambda: self.count(number) == "0")
        return process

    def count(self, number: int) -> str:
        """How many signals the rank has counted."""
        file = self.folder / str(number)
        return file.read_text() if file.exists() else ""

    def turn(self) -> bool:
        """One turn of the supervisor's loop. Returns True."""
        self.signal.do_what_is_due()
        return True


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    for process in node.processes:
        process.kill()
        process.wait()


def test_each_rank_gets_the_signal_once_however_often_the_hub_asks(node: Node) -> None:
    node.starts(0)
    node.starts(1)

    node.signal.send_once()
    wait_for(lambda: node.turn() and node.count(0) == node.count(1) == "1")
    node.signal.send_once()
    node.turn()

    assert ("1", "1") == (node.count(0), node.count(1))
    assert [Signalled(2), Signalled(2)] == node.reports
    assert ([], True) == (node.said, node.signal.is_due)


def test_a_signal_that_a_user_sends_comes_each_time(node: Node) -> None:
    node.starts(0)
    node.starts(1)
    for times in "12":
        node.signal.send_again()
        wait_for(lambda times=times: node.turn() and node.count(0) == node.count(1) == times)  # type: ignore[misc]

    assert not node.signal.is_due


def test_a_rank_gets_the_signal_only_if_it_has_a_handler(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than _PROGRAM_STARTS, for which the one with a handler has to wait as well.
    monkeypatch.setattr(signal_relay, "_HANDLER_PATIENCE", 1.0)
    node.starts(0)
    late = node.starts(1, str(node.folder / "begin"))
    node.signal.send_once()
    wait_for(lambda: node.turn() and node.reports)
    assert [Signalled(1, [1])] == node.reports
    assert ["rank 1 has no handler for SIGUSR1, which would only end it"] == node.said
    assert late.poll() is None

    (node.folder / "begin").touch()
    wait_for(lambda: node.turn() and node.count(1) == "1")
    assert "1" == node.count(0)
    assert Signalled(2) == node.reports[-1]


def test_a_rank_whose_thread_waits_for_the_signal_gets_it(node: Node) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        node.tracker.alive.append(SimpleNamespace(program=process.pid, number=0, placeholder=False))

        node.signal.send_once()
        wait_for(lambda: node.turn() and process.poll() is not None)

    assert 0 == process.returncode


def test_a_starting_process_is_left_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between fork and exec it has our handlers; the signal would then end the program that it becomes."""
    monkeypatch.setattr(signal_relay, "_HANDLER_PATIENCE", 1.0)
    signal.signal(signal.SIGUSR1, lambda *_: (tmp_path / "hit").touch())
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    try:
        node.tracker.alive.append(SimpleNamespace(program=pid, number=0, placeholder=False))
        node.signal.send_once()
        wait_for(lambda: node.turn() and node.reports)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert ([Signalled(0, [0])], False) == (node.reports, (tmp_path / "hit").exists())


def test_a_launcher_that_is_no_rank_gets_none(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_relay, "_HANDLER_PATIENCE", 0.1)
    launcher = node.starts(0)
    node.tracker.alive[0].placeholder = True
    node.tracker.launch = launcher
    node.signal.send_once()
    wait_for(lambda: node.turn() and node.reports)

    assert (Signalled(0), "0") == (node.reports[0], node.count(0))


@pytest.mark.parametrize(
    ("number", "plan", "named"),
    [
        (signal.SIGUSR1, {}, True),
        (signal.SIGUSR2, {}, False),
        (signal.SIGUSR1, {"keepers": True}, False),  # mpirun hands its copy on
    ],
)
def test_only_the_job_files_signal_is_for_ranks(tmp_path: Path, number: int, plan: Any, named: bool) -> None:
    assert named == Node(tmp_path, **plan).signal.is_named(number)


def test_a_job_without_a_signal_gives_none(node: Node) -> None:
    node.starts(0)
    plain = RankSignal(JobPlan("job", 1, 2, [], []), node.tracker, node.reports.append, node.said.append)
    plain.send_once()
    plain.do_what_is_due()

    assert ([], False, False) == (node.reports, plain.is_due, plain.is_named(signal.SIGUSR1))
