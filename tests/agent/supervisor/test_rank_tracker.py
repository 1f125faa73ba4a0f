"""The launch command and its ranks, where one process is both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.supervisor.launch import LaunchContext
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank


def test_a_rank_that_is_known_only_after_its_end(tmp_path: Path) -> None:
    """It is the launch command itself, whose exit code somebody has seen: a busy supervisor looks late."""
    nobody: Any = SimpleNamespace(launch_log=str(tmp_path / "launch.log"), streams=None)
    tracker = RankTracker(JobPlan("trial", 1, None, [], ["train.py"]), 0, nobody, nobody, nobody)
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as tracker.launch:
        tracker.launch.wait()
        assert [] == tracker.ended()
        rank = Rank(0, 0, tracker.launch.pid)
        tracker.ranks.append(rank)

        assert [rank] == tracker.ended()

    assert rank.exit is not None
    assert tracker.launch_exit is not None
    assert [rank.exit.code, tracker.launch_exit.code] == [7, 7]


@pytest.fixture(name="tracker")
def _tracker(tmp_path: Path) -> RankTracker:
    """That of a plain command, without a process so far."""
    console: Any = SimpleNamespace(log=lambda label, text: None, write=lambda label, lines: None)
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

        tracker.spawned(child, 2, parent.pid)

    assert [2] == [rank.number for rank in tracker.ranks]
    assert tracker.rank_of(child) is tracker.ranks[0]


def test_a_spawned_process_may_have_ended_before_it_is_known(tracker: RankTracker, tmp_path: Path) -> None:
    """Its parent has waited for it, and prints how it ended."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    child: Any = SimpleNamespace(pid=gone.pid, role="any")
    tracker.spawned(child, 2, os.getppid())
    (rank,) = tracker.ended()
    assert (2, None, None) == (rank.number, rank.exit and rank.exit.code, rank.exit and rank.exit.signal)
    launch_log = Path(LaunchContext(str(tmp_path), 0).launch_log)
    launch_log.write_text("torch.…ProcessExitedException: process 2 terminated with signal SIGKILL\n")

    tracker.finish_output()

    assert rank.exit is not None
    assert 9 == rank.exit.signal
