"""The launch command and its ranks, where one process is both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ddplaunch.agent.contract import JobPlan
from ddplaunch.agent.supervisor.rank_tracker import RankTracker
from ddplaunch.agent.supervisor.ranks import Rank


def test_a_rank_that_is_known_only_after_its_end(tmp_path: Path) -> None:
    """It is the launch command itself, whose exit code somebody has seen: a busy supervisor looks late."""
    nobody: Any = SimpleNamespace(launch_log=str(tmp_path / "launch.log"))
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
