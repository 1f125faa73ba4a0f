"""`pytest --ddplaunch` in a real pytest: hung tests get a verdict, others are left alone."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest
from tests.busy import BUSY

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[3]
SPAWNED = """
import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port, what):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    if what == "raise" and rank == 1:
        raise ValueError("bad sample")
    if what != "hang" or rank == 0:
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    dist.destroy_process_group()


def spawn(what):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    mp.spawn(work, (port, what), nprocs=2)


@pytest.mark.ddplaunch(timeout=5)
def test_hangs():
    spawn("hang")


def test_is_healthy():
    spawn("")


def test_raises():
    spawn("raise")
"""


def outcome(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *words: str) -> pytest.RunResult:
    """Of a pytest of its own, with no plugin but ours."""
    for name, value in (
        ("PYTHONPATH", os.pathsep.join(path for path in sys.path if path)),
        ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"),
        ("OMP_NUM_THREADS", "1"),
    ):
        monkeypatch.setenv(name, value)
    return pytester.runpytest_subprocess("-p", "ddplaunch.pytest_plugin", *words, timeout=BUSY * 150)


@pytest.mark.whole  # three groups of real ranks, of which one hangs
def test_a_test_that_hangs_is_named_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with the verdict and both stacks; a healthy one passes, and a failure keeps its own text."""
    pytester.makepyfile(SPAWNED)
    result = outcome(pytester, monkeypatch, "--ddplaunch")
    hung, _, raised = result.stdout.str().partition("_ test_raises _")

    result.assert_outcomes(passed=1, failed=2)
    assert "collective-mismatch: at collective 1 rank 0 called all_reduce" in hung
    assert all(f"rank {rank} (process " in hung for rank in (0, 1))
    assert 2 == hung.count(", in work\n", hung.index("rank 0 (process"), hung.index("what the test raised"))
    assert "ValueError: bad sample" in raised
    assert "ddplaunch verdict" not in raised


def test_a_test_without_ranks_is_left_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it, or a child of it, stands still; and its environment is restored."""
    pytester.makepyfile("""
        import os, subprocess, sys, time

        def test_stands_still():
            subprocess.run([sys.executable, "-c", "import time; time.sleep(3)"], check=True)
            assert "DDPLAUNCH_HOOK" in os.environ

        def test_fails():
            assert not "mine"
    """)
    pytester.makeconftest("""
        import os

        def pytest_sessionfinish():
            assert "DDPLAUNCH_HOOK" not in os.environ
    """)
    result = outcome(pytester, monkeypatch, "--ddplaunch", "--ddplaunch-timeout", "1")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*assert not 'mine'*"])


def test_without_the_option_nothing_is_watched(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing but pytest is imported; the marker is known all the same."""
    pytester.makepyfile("""
        import sys
        import pytest

        @pytest.mark.ddplaunch(timeout=3)
        def test_it():
            assert "ddplaunch.agent" not in sys.modules
    """)

    outcome(pytester, monkeypatch, "--strict-markers").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("mark", "words"),
    [("timeout='soon'", []), ("timeout=-1", []), ("timeout=1", ["--ddplaunch-timeout", "soon"])],
)
def test_a_timeout_that_is_none_is_said(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mark: str, words: list[str]
) -> None:
    """As an error of usage, with what was found."""
    pytester.makepyfile(f"import pytest\n@pytest.mark.ddplaunch({mark})\ndef test_it(): pass\n")
    result = outcome(pytester, monkeypatch, "--ddplaunch", *words)

    assert pytest.ExitCode.USAGE_ERROR == result.ret
    assert "seconds" in (result.stdout.str() + result.stderr.str()).lower()


def test_the_wheel_declares_the_plugin() -> None:
    """pytest finds it by itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert {"ddplaunch": "ddplaunch.pytest_plugin"} == project["entry-points"]["pytest11"]
