"""The rule on ranks that something outside has stopped."""

from __future__ import annotations

import pytest
from tests.agent.diagnosis.build import in_evaluate, job, only, rank

from ddplaunch.agent.contract import Process


@pytest.mark.parametrize(
    ("process", "how", "hint"),
    [
        (Process(1003, "T", wchan="do_signal_stop"), "by a signal (SIGSTOP or SIGTSTP)", "kill -CONT 1003"),
        (Process(1003, "t", wchan="ptrace_stop"), "by a debugger", "TracerPid /proc/1003"),
        (Process(1003, "D", wchan="__refrigerator"), "in a frozen cgroup", "unpause"),
    ],
)
def test_a_rank_is_stopped(process: Process, how: str, hint: str) -> None:
    """It is not said to be busy in its own code, and the hint fits."""
    stopped = rank(3, in_evaluate(), 16, process=process)
    verdict = only(job(rank(0), rank(1), rank(2), stopped))

    assert ("rank-stopped", [3], [1], [0, 1, 2]) == (
        verdict.code,
        verdict.ranks,
        verdict.nodes,
        verdict.victims,
    )
    assert f"rank 3 is stopped {how} on node 1, in evaluate (eval.py:140)" == verdict.sentence
    assert hint in verdict.hint


def test_a_rank_is_stopped_within_a_collective() -> None:
    """All seem to wait for each other; the one that cannot run is named."""
    stopped = rank(1, process=Process(1001, "T"))
    verdict = only(job(rank(0), stopped))

    assert ("rank-stopped", [1], [0]) == (verdict.code, verdict.ranks, verdict.victims)


def test_a_rank_that_computes_is_not_stopped() -> None:
    """One look may fall on a moment between two; the CPU that it used says that it runs."""
    busy = rank(1, in_evaluate(), 16, process=Process(1001, "T", cpu_share=0.9))
    verdict = only(job(rank(0), busy))

    assert "rank-in-user-code" == verdict.code
