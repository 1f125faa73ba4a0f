"""What a rank or a command wrote last, in the verdict on its end."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.diagnosis.build import NOW, dead, job, only, raised, rank

from ddplaunch.agent.contract import Exited, NodeEvidence

LINES = [f"line {number}" for number in range(14)]


def test_a_rank_without_an_exception_is_quoted() -> None:
    """Ten lines at most, the newest last."""
    failed = dead(1, 1, code=3, last_output="line 13", last_lines=LINES)
    verdict = only(job(rank(0), failed, why="death"))

    assert ["the last lines of rank 1:", *(f"| line {number}" for number in range(4, 14))] == verdict.facts[
        :11
    ]


def test_a_killed_rank_is_quoted() -> None:
    """What it was doing when the signal came stands in its log alone."""
    verdict = only(job(rank(0), dead(1, 1, signal=11, last_lines=["loads libfoo.so"]), why="death"))

    assert ["the last lines of rank 1:", "| loads libfoo.so"] == verdict.facts[:2]


def test_a_traceback_is_not_quoted_twice() -> None:
    """The sentence has it; what was written before it is quoted."""
    lines = ["reads shard 7", "Traceback (most recent call last):", '  File "train.py", line 61']
    error = raised("ValueError", "bad batch", 1)
    verdict = only(job(rank(0), dead(1, 1, code=1, raised=[error], last_lines=lines), why="death"))

    assert "| reads shard 7" in verdict.facts
    assert not any("Traceback" in fact for fact in verdict.facts)


def test_a_command_that_is_no_rank_is_quoted() -> None:
    """A script that fails before it starts a rank has no other witness."""
    node = NodeEvidence(0, "n0", NOW, "rendezvous", launch_exit=Exited(NOW, 3))
    node = replace(node, launch_output=["preparing", "", "cannot open data.bin"])
    verdict = only(replace(job(why="death"), nodes=1, evidence=[node]))

    expected = ["the last lines of node 0's launch command:", "| preparing", "| cannot open data.bin"]
    assert expected == verdict.facts


def test_nothing_is_quoted_of_a_victim() -> None:
    """Only the cause is read for its words."""
    ended = dead(0, 2, signal=15, by_us=True, last_lines=["still training"])
    failed = dead(1, 1, code=3, last_lines=["out of data"])
    verdict = only(job(ended, failed, why="death"))

    assert "| out of data" in verdict.facts
    assert "| still training" not in verdict.facts
