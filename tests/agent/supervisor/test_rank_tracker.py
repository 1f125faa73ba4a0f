"""The launch command and its ranks, where one process is both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agent.supervisor.conftest import wait_for
from tests.few_threads import refuse_threads

from ddplaunch.agent.contract import JobPlan, Rendezvous
from ddplaunch.agent.supervisor import rendezvous
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.rank_roles import ENVIRONMENT, Member
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc


def test_a_rank_that_is_known_only_after_its_end_has_its_exit_code(tmp_path: Path) -> None:
    """It is the launch command itself, whose exit code somebody has seen: a busy supervisor looks late."""
    nobody: Any = SimpleNamespace(launch_log=str(tmp_path / "launch.log"), streams=None)
    tracker = RankTracker(JobPlan("trial", 1, None, [], ["train.py"]), 0, nobody, nobody, nobody)
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as tracker.launch:
        tracker.launch.wait()
        assert [] == tracker.take_ended()
        rank = Rank(0, 0, tracker.launch.pid)
        tracker.ranks.append(rank)

        assert [rank] == tracker.take_ended()

    assert rank.exit is not None
    assert tracker.launch_exit is not None
    assert [rank.exit.code, tracker.launch_exit.code] == [7, 7]


def _nothing(label: object, text: object) -> None:
    """Print nothing."""


@pytest.fixture(name="tracker")
def _tracker(tmp_path: Path) -> RankTracker:
    """That of a plain command, without a process so far."""
    console: Any = SimpleNamespace(is_full=True, log=_nothing, write=_nothing, flush=lambda: None)
    hooks: Any = SimpleNamespace(lines={})
    place = LaunchContext(str(tmp_path), 0)
    Path(place.launch_log).parent.mkdir(parents=True)
    return RankTracker(JobPlan("trial", 1, None, [], ["train.py"]), 0, place, hooks, console)


def test_a_process_that_says_how_it_was_started_is_a_rank_at_once(tracker: RankTracker) -> None:
    """A child of mp.spawn may end before it is asked, and long before it calls init_process_group."""
    script = "{ cat <&3 & } 3<&0; echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child: Any = SimpleNamespace(pid=int(parent.stdout.readline()), role="any")
        tracker._hooks.lines[child.pid] = child

        tracker.note_spawned(child, 2, parent.pid)

    assert [2] == [rank.number for rank in tracker.ranks]
    assert tracker.rank_of(child) is tracker.ranks[0]


def test_a_spawned_process_may_have_ended_before_it_is_known(tracker: RankTracker, tmp_path: Path) -> None:
    """Its parent has waited for it, and prints how it ended."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    child: Any = SimpleNamespace(pid=gone.pid, role="any")
    tracker.note_spawned(child, 2, os.getppid())
    (rank,) = tracker.take_ended()
    assert (2, None, None) == (rank.number, rank.exit and rank.exit.code, rank.exit and rank.exit.signal)
    launch_log = Path(LaunchContext(str(tmp_path), 0).launch_log)
    launch_log.write_text("torch.…ProcessExitedException: process 2 terminated with signal SIGKILL\n")

    tracker.finish_output()

    assert rank.exit is not None
    assert 9 == rank.exit.signal


class Workers:
    """Processes with a rank's number in their environment, as a launcher starts them."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, number: int) -> subprocess.Popen[bytes]:
        env = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number)}
        return self.begin(env)

    def begin(self, env: dict[str, str]) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(["sleep", "60"], env=env)
        self.started.append(worker)
        wait_for(lambda: proc.environment(worker.pid), what="a process that has been executed")
        return worker

    def end(self, *workers: subprocess.Popen[bytes]) -> None:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.fixture(name="workers")
def _workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.end(*workers.started)


def pids(tracker: RankTracker) -> dict[int, int]:
    """Pid of each rank that the tracker has."""
    return {rank.number: rank.pid for rank in tracker.ranks}


def test_a_process_in_a_dead_ranks_place_begins_an_attempt(tracker: RankTracker, workers: Workers) -> None:
    """All that have ended are set aside, also those that the new attempt has none of; none comes back."""
    first = [workers.start(number) for number in range(3)]
    tracker.discover()
    workers.end(*first)
    assert 3 == len(tracker.take_ended())
    second = [workers.start(number) for number in range(2)]
    tracker.discover()
    tracker.discover()

    assert 1 == tracker.attempt
    assert {0: second[0].pid, 1: second[1].pid} == pids(tracker)
    assert [] == tracker.take_ended()


def test_the_end_of_a_rank_replaced_before_a_look_is_told(tracker: RankTracker, workers: Workers) -> None:
    """A busy supervisor sees the new process first."""
    first = workers.start(0)
    tracker.discover()
    workers.end(first)
    workers.start(0)
    tracker.discover()

    assert (1, [first.pid]) == (tracker.attempt, [rank.pid for rank in tracker.take_ended()])


def test_a_rank_that_starts_late_is_of_the_same_attempt(tracker: RankTracker, workers: Workers) -> None:
    """One has ended before the last was there: its end still explains what the others do."""
    first = [workers.start(number) for number in range(2)]
    tracker.discover()
    workers.end(first[0])
    assert 1 == len(tracker.take_ended())
    late = workers.start(2)
    tracker.discover()

    assert 0 == tracker.attempt
    assert {0: first[0].pid, 1: first[1].pid, 2: late.pid} == pids(tracker)


def test_torchruns_count_of_restarts_is_read_from_its_workers(workers: Workers) -> None:
    count = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "3"}
    plain = Rank(0, 0, workers.begin({"RANK": "0"}).pid)
    rank = Rank(0, 0, workers.begin({"RANK": "0", **count}).pid)

    assert (None, None) == (plain.restart, plain.max_restarts)
    assert (1, 3) == (rank.restart, rank.max_restarts)


def test_ranks_that_go_to_one_place_share_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Rendezvous] = []
    real = rendezvous.look_up

    def counted(made: Rendezvous) -> Rendezvous:
        looked.append(made)
        return real(made)

    monkeypatch.setattr(rendezvous, "look_up", counted)
    asked = rendezvous.Lookups()
    ranks = [Rank(number, number, os.getpid()) for number in range(4)]
    for rank, address in zip(ranks, ("localhost", "localhost", "127.0.0.1", "localhost")):
        rank.rendezvous = Rendezvous(at=1.0 + rank.number, method="env", address=address, port=1)
        asked.begin(rank)
    again = ranks[3].rendezvous = Rendezvous(at=9.0, method="env", address="localhost", port=1)
    found: list[Rank] = []
    until = time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < until:
        found += asked.finished()
        time.sleep(0.01)

    assert sorted(made.address for made in looked) == ["127.0.0.1", "localhost"]
    assert {rank.number for rank in found} == {0, 1, 2}
    assert [rank.rendezvous.at for rank in ranks[:3] if rank.rendezvous] == [1.0, 2.0, 3.0]
    assert all(rank.rendezvous and rank.rendezvous.resolved for rank in found)
    assert ranks[3].rendezvous == again


def test_without_a_free_thread_nothing_is_looked_up_and_all_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_threads(monkeypatch)
    asked, rank = rendezvous.Lookups(), Rank(0, 0, os.getpid())
    made = rank.rendezvous = Rendezvous(at=1.0, method="env", address="localhost", port=1)
    asked.begin(rank)

    assert [rank] == list(asked.finished())
    assert made == rank.rendezvous


def test_a_torchrun_below_a_script_is_no_rank(tracker: RankTracker, tmp_path: Path) -> None:
    """It is a Python with the hook, as any program that stands in for rank 0."""
    for name, ranks in (("torchrun", 0), ("train.py", 1)):
        program = tmp_path / name
        program.write_text("import sys\nsys.stdin.read()\n")
        words = [sys.executable, str(program), "--nnodes=2"]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
            wait_for(lambda: str(program) in proc.command_line(process.pid))  # noqa: B023 - called here
            line: Any = SimpleNamespace(pid=process.pid, role="any", is_open=True, output_files=[])
            tracker._hooks.lines[line.pid] = line

            tracker.note_connected(line)
            seen = len(tracker.ranks)

            assert process.stdin is not None
            process.stdin.close()
        assert ranks == seen


def test_what_a_rank_prints_is_its_own_even_if_it_was_seen_before_its_hook_had_said_where(
    tracker: RankTracker, tmp_path: Path
) -> None:
    """On a busy machine, half a second may lie between its connection and its first message."""
    printed = tmp_path / "stdout.log"
    printed.write_text("loss 0.5\n")
    carrier: Any = SimpleNamespace(carry=lambda *_, **__: None)
    console: Any = SimpleNamespace(is_full=False, write=_nothing, flush=lambda: None)
    tracker.logs._place.streams, tracker.logs._console = carrier, console
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        line = tracker._hooks.lines[process.pid] = Line(ours, process.pid)
        rank = tracker._add(Member(line.pid, line.pid, 1, 1, None, ENVIRONMENT))
        line.role, line.output_files = "rank", [str(printed)]

        tracker.note_connected(line)
        tracker.logs.read()

        assert process.stdin is not None
        process.stdin.close()
    assert rank is not None
    assert "loss 0.5" == rank.last_output
