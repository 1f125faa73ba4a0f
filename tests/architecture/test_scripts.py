"""The scripts behind the Makefile say what is missing, and fail when they should."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("script", "variable", "message", "hint"),
    [
        ("find-python", "PYTHON", "no Python >= 3.11 with the venv module", "install python3-venv"),
        ("find-python39", "PYTHON39", "no Python 3.9 was found", "make test PYTHON39="),
    ],
)
@pytest.mark.parametrize("python", ["/bin/false", "/no/such/python"])
def test_a_missing_python_is_named_with_a_way_out(
    script: str, variable: str, message: str, hint: str, python: str
) -> None:
    """A newcomer without a fitting Python reads what to install, or how to name one."""
    result = subprocess.run(
        [ROOT / "scripts" / script],
        env={**os.environ, variable: python},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "") == (result.returncode, result.stdout)
    assert message in result.stderr.splitlines()[0]
    assert hint in result.stderr


def test_run_tests_ends_with_the_closing_lines_and_fails_with_its_suites(tmp_path: Path) -> None:
    """The last lines hold every suite's count; a failure is never lost behind a later success.

    Python keeps what it compiles, whatever was said to it before: else every rank compiles torch anew.
    """
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run-tests").write_bytes((ROOT / "scripts" / "run-tests").read_bytes())
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    fails = 'echo "1 failed, 2 passed"; exit 1'
    passes = 'echo "3 passed${PYTHONDONTWRITEBYTECODE+, nothing kept}"'
    python.write_text(f'#!/bin/sh\ncase "$*" in *"not (processes"*) {fails} ;; *) {passes} ;; esac\n')
    python.chmod(0o755)

    result = subprocess.run(
        ["bash", tmp_path / "scripts" / "run-tests", "quick", "slow"],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == result.returncode
    assert [
        "quick              1 failed, 2 passed",
        "slow               3 passed",
    ] == result.stdout.splitlines()[-2:]


def test_run_tests_refuses_an_unknown_suite() -> None:
    """A misspelt suite is an error, not an empty success."""
    result = subprocess.run(
        [ROOT / "scripts" / "run-tests", "quik"], capture_output=True, text=True, check=False
    )

    assert 2 == result.returncode
    assert "no suite is called quik" in result.stderr
