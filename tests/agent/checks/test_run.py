"""All checks together: bounded, in order, and none can spoil the others."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.agent.checks.make import make_context
from tests.busy import BUSY

from ddplaunch.agent.checks.context import Context, passed
from ddplaunch.agent.checks.run import CHECKS, run
from ddplaunch.agent.contract import CheckResult, Status


def good(context: Context) -> CheckResult:
    """Passes."""
    return passed("good", "fine")


def broken(context: Context) -> CheckResult:
    """Has a mistake."""
    raise ZeroDivisionError("a mistake")


def test_checks_run_side_by_side_and_their_results_come_in_order(tmp_path: Path) -> None:
    slow = threading.Barrier(2, timeout=BUSY * 5)

    def meet(context: Context) -> CheckResult:
        slow.wait()
        return passed("meet", "met")

    results = run(make_context(tmp_path), (("first", meet), ("good", good), ("second", meet)))

    assert [Status.PASS] * 3 == [result.status for result in results]


def test_a_check_that_breaks_is_unknown_and_fails_nobody(tmp_path: Path) -> None:
    first, second = run(make_context(tmp_path), (("broken", broken), ("good", good)))

    assert (first.check, first.status) == ("broken", Status.UNKNOWN)
    assert "ZeroDivisionError: a mistake" in first.observed
    assert second.status == Status.PASS


def test_a_check_that_hangs_costs_only_the_time_of_its_bound(tmp_path: Path) -> None:
    forever = threading.Event()

    def hang(context: Context) -> CheckResult:
        forever.wait(30)
        return passed("hang", "late")

    started = time.monotonic()
    first, second = run(make_context(tmp_path), (("hang", hang), ("good", good)), seconds=0.3)
    forever.set()

    assert time.monotonic() - started < BUSY * 3
    assert (first.status, second.status) == (Status.UNKNOWN, Status.PASS)
    assert "no answer in 0 s" in first.observed


def test_every_check_gives_a_result_under_its_name(tmp_path: Path) -> None:
    context = make_context(tmp_path)
    results = run(context)
    assert context.master is not None
    context.master.close()

    assert [name for name, _ in CHECKS] == [result.check for result in results]
