"""What is kept of processes that may be ranks."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

from ddplaunch.agent.supervisor.rank_roles import Candidate, Candidates


def test_a_loaders_workers_are_dropped_with_their_end_and_ranks_are_kept() -> None:
    """Every epoch brings new workers; what has called init_process_group stays known after its death."""
    candidates = Candidates()
    with subprocess.Popen(["sleep", "60"]) as worker, subprocess.Popen(["sleep", "60"]) as rank:
        lines: Any = [
            SimpleNamespace(pid=worker.pid, answer={"spawned": 0}),
            SimpleNamespace(pid=rank.pid, answer=None),
        ]
        assert candidates.answered(lines)
        candidates.called(lines[1], 0, 1)
        candidates.find()
        assert {worker.pid, rank.pid} == set(candidates._known)
        worker.kill()
        rank.kill()
        worker.wait()
        rank.wait()
    candidates.find()

    known: dict[int, Candidate] = candidates._known
    assert {rank.pid} == set(known)
