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
from tests.faults import table
from tests.faults.times import seconds

from ddplaunch.agent.contract import Bundle, Files, bundle_file
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

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
    parser.addoption("--faults-where", choices=table.PARTS, help="only those of the gate, or of a run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only tests that provoke a fault, of one backend or part of the way if one is named."""
    on, where = config.getoption("--faults-on"), config.getoption("--faults-where")
    asked = table.PARTS.get(where, CATALOGUE)
    chosen = [
        item
        for item in items
        if on in (None, backend(item.path.as_posix())) and any(code in asked for code in codes(item))
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a job left is looked at before the test's folder is emptied."""
    own = dict(item.user_properties).get("seconds")
    times = {code: own if own is not None else _seconds(item, code) for code in codes(item)}
    report = yield
    if report.when == "call" and not report.skipped:
        report.user_properties.append(("faults", times))
    return report


def _seconds(item: pytest.Item, code: str) -> float | None:
    folders = [item.funcargs[name] for name in FOLDERS if name in getattr(item, "funcargs", {})]  # type: ignore[attr-defined]
    bundles = (bundle for folder in folders for bundle in _bundles(folder))
    return next((told for bundle in bundles if (told := seconds(bundle, code)) is not None), None)


def _bundles(folder: Path) -> Iterator[Bundle]:
    """Oldest first: a fault comes before the job that starts once it is mended."""
    found = [path for path in folder.rglob(Path(Files.BUNDLE).name) if path.is_file()]
    for path in sorted(found, key=lambda path: path.stat().st_mtime):
        yield bundle_file.read(str(path))


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
            [
                [code, backend(place), place, report.passed, took]
                for code, took in told.get("faults", {}).items()
            ]
        )

    def _write(self, lines: list[list[Any]]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that hears of all tests writes."""
    file = config.getoption("--faults")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Scribe(file))
