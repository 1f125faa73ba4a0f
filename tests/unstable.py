"""Which tests failed, and some of them once more: a plugin of pytest, and what comes after the last suite.

`-p tests.unstable --failures FILE` writes down each test that failed, and what it said.
`python -m tests.unstable --allowed N FILE...` then runs those again that start real processes or measure real
time, one by one, with nothing beside them: whatever passes now is unstable. Exits 0 when nothing else failed
and at most N were unstable.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

REAL = ("processes", "slow", "corpus", "slurm", "kubernetes", "transparent")
"""Marks of tests that a busy machine can disturb."""
KEPT = Path("build/unstable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file, which is written at the end, and only when something failed."""
    parser.addoption("--failures", type=Path, metavar="FILE", help="write down which tests failed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report says whether the test is real: who hears of it, in another process, has no marks."""
    report = yield
    report.real = any(item.get_closest_marker(mark) for mark in REAL)  # type: ignore[attr-defined]
    return report


class _Scribe:
    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._file = file
        # As every test of the suite was run, but alone.
        timeout = config.getoption("--timeout", None)
        where = os.environ.get("IN_RELEASE", "").split()  # tests/cluster/slurm/in-release
        words = [sys.executable, "-m", "pytest", "-q", *([f"--timeout={timeout}"] if timeout else [])]
        self._again = [*where, *words]
        self._failures: dict[str, dict[str, Any]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected is no test that could be run again."""
        if report.failed:
            self._failed(report, real=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of xdist's workers too. A worker that died reports its test itself, and knows of no marks."""
        if report.failed:
            self._failed(report, real=getattr(report, "real", False))

    def _failed(self, report: pytest.TestReport | pytest.CollectReport, *, real: bool) -> None:
        parts = [report.longreprtext, *(f"--- {title} ---\n{text}" for title, text in report.sections)]
        known = self._failures.setdefault(report.nodeid, {"real": True, "text": "", "again": self._again})
        known["real"] = known["real"] and real
        known["text"] += "\n\n".join(parts) + "\n"

    def pytest_sessionfinish(self) -> None:
        if self._failures:
            self._file.write_text(json.dumps(self._failures), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that hears of all tests writes."""
    file = config.getoption("--failures")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Scribe(config, file))


def _kept(name: str, text: str) -> Path:
    """The file that now holds what a test said when it failed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[-200:].strip('-')}.txt"
    file.write_text(f"{name}\n\n{text}", encoding="utf-8")
    return file


def settle(files: list[Path], allowed: int) -> int:
    """0 when all that failed is unstable, and no more than `allowed`. Prints what is and what is not."""
    failures: dict[str, dict[str, Any]] = {}
    for file in files:
        failures.update(json.loads(file.read_text(encoding="utf-8")))
    real = {name: told for name, told in failures.items() if told["real"]}
    told = []
    code = 0
    for name in failures.keys() - real.keys():
        told.append(f"failed: {name}")
        code = 1
    if len(real) > allowed:
        # Each of them may take minutes, and whatever they do, the run has failed.
        told += [f"failed: {name}" for name in real]
        told += [f"more than {allowed} tests failed: none is run again"] if allowed else []
        real, code = {}, 1
    for name, failure in real.items():
        print(f"== once more, alone: {name}", flush=True)
        if subprocess.run([*failure["again"], name], check=False).returncode == 0:
            told.append(f"unstable: {name} passed when it ran alone; before: {_kept(name, failure['text'])}")
        else:
            told.append(f"failed twice: {name}")
            code = 1
    print("", *sorted(told), sep="\n")
    return code


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unstable")
    parser.add_argument("--allowed", type=int, required=True)
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    return settle(arguments.files, arguments.allowed)


if __name__ == "__main__":
    sys.exit(_main())
