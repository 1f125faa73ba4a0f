"""`pytest --ddplaunch` in a real pytest: hung tests get a verdict, others are left alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.unit.pytest_plugin.inner_pytest import outcome

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[3]


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


POOL = """
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def pool():
    numbers = [{"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2"} for number in range(2)]
    words = [sys.executable, "-c", "input()"]
    ranks = [subprocess.Popen(words, env={**os.environ, **each}, stdin=subprocess.PIPE) for each in numbers]
    yield ranks
    for rank in ranks:
        rank.communicate(b"\\n")
    assert [0, 0] == [rank.returncode for rank in ranks]


def test_starts_them(pool):
    pass


@pytest.mark.ddplaunch(timeout=1)
def test_has_no_ranks():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(6)"], check=True)


@pytest.mark.ddplaunch(timeout=1)
def test_has_a_rank_of_its_own():
    own = {"RANK": "3", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}
    subprocess.run([sys.executable, "-c", "import time; time.sleep(300)"], env={**os.environ, **own})
"""


@pytest.mark.whole
def test_idle_ranks_of_an_older_fixture_hang_no_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside them a test without ranks stands still for as long as it likes; one that hangs is judged by its
    own ranks alone; and they live until their fixture ends them.
    """
    pytester.makepyfile(POOL)
    result = outcome(pytester, monkeypatch, "--ddplaunch")
    judged = set(re.findall(r"^rank (\d) \(process", result.stdout.str(), re.MULTILINE))

    result.assert_outcomes(passed=2, failed=1)
    assert {"3"} == judged


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
