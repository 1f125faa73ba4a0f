"""A plugin of pytest that writes down how each provoked fault was told.

`-p tests.faults.plugin --faults FILE`: a line of FILE is one test: [code, backend, name, hit, seconds].
Seconds come from the bundles that a job left in the test's own folder, or from the test itself, by
`record_property("seconds", …)`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.times import seconds

from ddplaunch.agent import codec
from ddplaunch.agent.contract import Bundle, Files

FOLDERS = ("tmp_path", "work")
"""Fixtures that are folders in which a test's jobs lie."""


def backend(path: str) -> str:
    """Of a test, by its place."""
    return next((name for name in ("slurm", "kubernetes") if f"tests/cluster/{name}/" in path), "local")


def codes(item: pytest.Item) -> list[str]:
    """What the test provokes."""
    return [str(mark.args[0]) for mark in item.iter_markers("fault")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file, which is added to."""
    parser.addoption("--faults", type=Path, metavar="FILE", help="write down how provoked faults were told")
    parser.addoption("--faults-on", metavar="BACKEND", help="only those of local, slurm or kubernetes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only tests that provoke a fault, and of one backend if one is named."""
    wanted = config.getoption("--faults-on")
    chosen = [item for item in items if codes(item) and wanted in (None, backend(item.path.as_posix()))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a job left is looked at before the test's folder is emptied."""
    if call.when == "call" and not any(name == "seconds" for name, _ in item.user_properties):
        item.user_properties.append(("seconds", _seconds(item)))
    report = yield
    if report.when == "call" and not report.skipped:
        report.user_properties.append(("faults", codes(item)))
    return report


def _seconds(item: pytest.Item) -> float | None:
    folders = [item.funcargs[name] for name in FOLDERS if name in getattr(item, "funcargs", {})]  # type: ignore[attr-defined]
    told = [
        each for folder in folders for bundle in _bundles(folder) if (each := seconds(bundle)) is not None
    ]
    return told[0] if told else None


def _bundles(folder: Path) -> Iterator[Bundle]:
    """Oldest first: a fault comes before the job that starts once it is mended."""
    found = [path for path in folder.rglob(Path(Files.BUNDLE).name) if path.is_file()]
    for path in sorted(found, key=lambda path: path.stat().st_mtime):
        yield codec.read(Bundle, str(path))


class _Scribe:
    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What there is to be provoked, when that is all that is asked."""
        if session.config.option.collectonly:
            for item in session.items:
                self._write([[code, backend(item.nodeid), item.nodeid, None, None] for code in codes(item)])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of xdist's workers too."""
        told: dict[str, Any] = dict(report.user_properties)
        place = report.nodeid
        self._write(
            [[code, backend(place), place, report.passed, told["seconds"]] for code in told.get("faults", [])]
        )

    def _write(self, lines: list[list[Any]]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that hears of all tests writes."""
    file = config.getoption("--faults")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Scribe(file))
