"""The pytest plugin: `--ddplaunch` gives a distributed test that hangs a verdict, with its ranks' stacks.

pytest imports this module in every session of an environment in which ddplaunch is installed. So it must not
import more than pytest until the option is given.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ddplaunch.pytest_plugin.watch import Lookout, Watch

TIMEOUT = 60.0
"""Seconds without progress by any rank of a test, if neither option nor marker sets another number."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ddplaunch")
    group.addoption(
        "--ddplaunch",
        action="store_true",
        help="end a distributed test whose ranks make no progress, and say which rank, where and why",
    )
    group.addoption(
        "--ddplaunch-timeout",
        type=_seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"after so many seconds without progress of any rank of the test (default: {TIMEOUT:.0f})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with --ddplaunch, start to watch."""
    config.addinivalue_line(
        "markers", "ddplaunch(timeout): seconds without progress after which --ddplaunch ends this test"
    )
    if config.getoption("--ddplaunch"):
        from ddplaunch.pytest_plugin.watch import Lookout

        folder = tempfile.mkdtemp(prefix="ddplaunch-pytest-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        lookout = Lookout(folder)
        config.add_cleanup(lookout.hooks.close)
        watcher = Watcher(lookout, config.getoption("--ddplaunch-timeout"))
        config.pluginmanager.register(watcher, "ddplaunch-watcher")


class Watcher:
    """Watches the child processes of each test."""

    def __init__(self, lookout: Lookout, timeout: float) -> None:
        self._lookout = lookout
        self._timeout = timeout
        self._watch: Watch | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch from before the test's fixtures are set up until they have been torn down."""
        from ddplaunch.pytest_plugin.watch import Watch

        self._watch = Watch(self._lookout, _timeout_of(item, self._timeout))
        try:
            return (yield)
        finally:
            self._watch.close()
            self._watch = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let the phase of a test that hung fail with the verdict, instead of what ending the test has
        raised.
        """
        report = yield
        found = self._watch.take() if self._watch is not None else None
        if found is not None:
            if report.failed:
                report.sections.append(
                    ("what the test raised when its ranks were ended", report.longreprtext)
                )
            report.outcome = "failed"
            report.longrepr = found
        return report


def _timeout_of(item: pytest.Item, default: float) -> float:
    mark = item.get_closest_marker("ddplaunch")
    if mark is None:
        return default
    value = mark.kwargs.get("timeout", mark.args[0] if mark.args else None)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise pytest.UsageError(
            f"{item.nodeid}: @pytest.mark.ddplaunch wants timeout=SECONDS, found {value!r}"
        )
    return float(value)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number of seconds above 0, found {text!r}")
    return value
