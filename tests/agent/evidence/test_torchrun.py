"""The failure report that torchrun 2.15 prints, for the exit codes that nobody else saw."""

from __future__ import annotations

from ddplaunch.agent.evidence import program_output

REPORT = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_04:50:11
  host      : node-a
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 812)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 812
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_04:50:11
  host      : node-a
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 811)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_exit_codes_of_the_report() -> None:
    """Rank, local rank, pid and code of every worker that is listed; signals are negative."""
    assert program_output.torchrun_exits(REPORT) == {5: (1, 812, -9), 4: (0, 811, 1)}


def test_a_log_without_report() -> None:
    """Nothing is read where nothing is said."""
    assert program_output.torchrun_exits("rank 3: exitcode : 1\nusage: torchrun [-h]\n") == {}
