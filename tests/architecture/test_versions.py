"""The page of what the tests ran on says what their results say, and takes over none that failed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from tests import versions

RESULTS = """\
<testsuites><testsuite errors="0" failures="{failures}" skipped="1" tests="{tests}"
 timestamp="2026-11-30T17:54:12.848000+00:00"><properties>
<property name="python" value="3.14.8"/><property name="slurm" value="26.05.5"/>
</properties></testsuite></testsuites>
"""


def results(tmp_path: Path, tests: int, failures: int) -> Path:
    """A suite's, as pytest writes them."""
    file = tmp_path / "slurm-forky.xml"
    file.write_text(RESULTS.format(tests=tests, failures=failures))
    return file


def test_what_passed_is_a_row_with_the_versions_that_the_suite_uses(tmp_path: Path) -> None:
    found = versions.result(results(tmp_path, 88, 0))

    row = "| slurm-forky | jobs on three nodes | 87 | 1 | 3.14.8 | - | 26.05.5 | - | 2026-11-30 |"
    assert row == versions.page({"slurm-forky": found}).splitlines()[-1]


@pytest.mark.parametrize(("tests", "failures"), [(88, 1), (0, 0)])
def test_a_suite_that_failed_or_ran_nothing_is_not_taken_over(
    tmp_path: Path, tests: int, failures: int
) -> None:
    with pytest.raises(ValueError, match="have failed"):
        versions.result(results(tmp_path, tests, failures))


def test_the_plugin_writes_the_versions_into_the_results(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    file = tmp_path / "quick.xml"
    words = ["-m", "pytest", "-q", "-p", "tests.versions", "-c", os.devnull, "--junitxml", str(file)]
    subprocess.run(
        [sys.executable, *words, str(tmp_path)], cwd=versions.ROOT, check=True, capture_output=True
    )

    assert platform.python_version() == versions.result(file)["python"]
