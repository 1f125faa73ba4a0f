"""mpirun's own words about a rank's end."""

from __future__ import annotations

import pytest

from ddplaunch.agent.evidence import program_output

RULE = "-" * 74


FOUR = """
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[27115,1],1]
  Exit code:    7
"""
FOUR_KILLED = """
mpirun noticed that process rank 1 with PID 0 on node n1 exited on signal 9 (Killed).
"""
FIVE = """
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-n1-6099@1,12]
   Exit code:    3
"""
FIVE_KILLED = """
prterun noticed that process rank 2 with PID 6117 on node n1 exited on
signal 9 (Killed).
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FOUR, {1: 7}),
        (FOUR_KILLED, {1: -9}),
        (FIVE, {12: 3}),
        (FIVE_KILLED, {2: -9}),
        ("Process name: none\nExit code: unknown", {}),
    ],
)
def test_the_rank_that_ended_first(text: str, expected: dict[int, int]) -> None:
    """As mpirun of Open MPI 4.1 and 5.0 prints it."""
    assert expected == program_output.mpirun_exits(text)
