"""For every test, on Python 3.9 too: in CI nothing may be skipped, and the corpus counts as slow."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _fail_what_was_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped too, and is none.
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} did not run, and in CI every test must. {reason}"


def pytest_configure() -> None:
    """Keep what surrounds the tests out of them: the developer's profiles, and signals that are ignored.

    Under nohup, or behind `&`, signals are ignored, which all processes of the tests would inherit.
    """
    os.environ["DDPLAUNCH_PROFILE"] = "none"
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # still nothing to us, and the default after exec


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that would be skipped fails in CI: a guard that quietly does not run guards nothing."""
    report = yield
    _fail_what_was_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """As above, for a module that skips itself whole."""
    report = yield
    _fail_what_was_skipped(report)
    return report


# Real agents, hosts and kills, which wait a lot; other programs; many inputs. Too long between two edits.
_PROCESSES = (
    "tests/agent/contract/test_bundle_file.py",
    "tests/agent/evidence/test_waits.py",
    "tests/agent/gate",
    "tests/agent/hook/test_hook.py",
    "tests/agent/hook/test_mpi.py",
    "tests/agent/hub/test_hub.py",
    "tests/agent/hub/test_notifier.py",
    "tests/agent/hub/test_poor.py",
    "tests/agent/hub/test_server.py",
    "tests/agent/hub/test_smoke_session.py",
    "tests/agent/join/test_munge.py",
    "tests/agent/join/test_run.py",
    "tests/agent/outside/test_dump_files.py",
    "tests/agent/supervisor",
    "tests/agent/test_commands.py",
    "tests/agent/test_pods.py",
    "tests/agent/local",
    "tests/architecture/test_adding.py",
    "tests/architecture/test_unstable.py",
    "tests/architecture/test_wheel.py",
    "tests/chaos/test_samples.py",
    "tests/fuzz",
    "tests/unit/backends/kubernetes/test_debug_container.py",
    "tests/unit/backends/kubernetes/test_foreign_evidence.py",
    "tests/unit/backends/kubernetes/test_outside_pods.py",
    "tests/unit/backends/kubernetes/test_snapshot.py",
    "tests/unit/backends/slurm/test_parse.py",
    "tests/unit/backends/test_files.py",
    "tests/unit/backends/test_local.py",
    "tests/unit/cli/test_completion.py",
    "tests/unit/cli/test_reference.py",
    "tests/unit/cli/test_streams.py",
    "tests/unit/inject/test_properties.py",
    "tests/unit/pytest_plugin",
    "tests/unit/render/test_archive.py",
    "tests/unit/render/test_kubernetes_properties.py",
    "tests/unit/render/test_kubernetes_traps.py",
    "tests/unit/render/test_slurm.py",
    "tests/unit/spec/test_roundtrip.py",
    "tests/unit/test_start_up.py",
    "tests/unit/verdicts/test_any_evidence.py",
    "tests/unit/verdicts/test_cuts.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by place what takes long: provoked faults, and whole agents."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
        if path.startswith("tests/corpus/"):
            item.add_marker("corpus")
        elif path.startswith(_PROCESSES):
            item.add_marker("processes")
        elif path.startswith("tests/cluster/slurm/"):
            item.add_marker("slurm")
        elif path.startswith("tests/cluster/kubernetes/extras/"):
            item.add_marker("extras")
            item.add_marker("whole")
        elif path.startswith("tests/cluster/kubernetes/"):
            item.add_marker("kubernetes")
        elif path.startswith("tests/transparent/"):
            item.add_marker("transparent")
