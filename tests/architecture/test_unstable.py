"""How a run of the tests ends: a few may be unstable, a skip fails in CI, and nothing else may fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """[pytest]
addopts = --strict-markers
markers =
""" + "".join(
    f"    {mark}\n" for mark in ("processes", "slow", "corpus", "slurm", "kubernetes", "transparent", "whole")
)
REAL = "import pytest\npytestmark = pytest.mark.processes\n"
UNSTABLE = """
def test_unstable_{0}(request):
    tried = request.config.rootpath / "tried-{0}"
    if not tried.exists():
        tried.touch()
        print("this is what node {0} said")
        raise AssertionError("the machine was busy: {0}")
"""
BROKEN = "\ndef test_broken():\n    raise AssertionError('as always')\n"


def run_tests(folder: Path, text: str, suite: str = "processes", **env: str) -> tuple[int, list[str]]:
    """The exit status and the last lines of our own run-tests in a folder with this test file."""
    (folder / "tests").mkdir()
    (folder / "tests/test_planted.py").write_text(text)
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "scripts").mkdir()
    for file in ("scripts/run-tests", "tests/unstable.py", "tests/versions.py"):
        (folder / file).write_bytes((ROOT / file).read_bytes())
    (folder / ".venv").symlink_to(sys.prefix)
    result = subprocess.run(
        ["bash", folder / "scripts/run-tests", suite],
        env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "JOBS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    print(result.stdout)  # shown when the test failed
    return result.returncode, result.stdout.splitlines()


@pytest.mark.whole
def test_three_unstable_tests_pass_and_are_named_with_what_they_said(tmp_path: Path) -> None:
    """The last lines name each, and the file that holds how it failed; pytest's own line comes last."""
    planted = "".join(UNSTABLE.format(number) for number in range(3))
    code, lines = run_tests(tmp_path, f"{REAL}{planted}\ndef test_fine(): pass\n")

    assert 0 == code
    last = lines[lines.index("") :] if "" in lines else lines
    named = [line for line in last if line.startswith("unstable: ")]
    assert [f"unstable: tests/test_planted.py::test_unstable_{number} passed" for number in range(3)] == [
        line.partition(" when it ran alone; before: ")[0] for line in named
    ]
    for number, line in enumerate(named):
        kept = (tmp_path / line.rpartition(" ")[2]).read_text()
        assert f"AssertionError: the machine was busy: {number}" in kept
        assert f"this is what node {number} said" in kept
    assert lines[-1].startswith("processes          3 failed, 1 passed in ")


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (BROKEN, "failed twice: tests/test_planted.py::test_broken"),
        (
            "".join(UNSTABLE.format(number) for number in range(4)),
            "more than 3 tests failed: none is run again",
        ),
        # A worker of xdist that dies says nothing of its tests.
        ("\ndef test_dies():\n    import os\n    os._exit(1)\n", "failed: tests/test_planted.py::test_dies"),
    ],
    ids=["broken", "four", "dies"],
)
def test_what_is_broken_fails_the_run(tmp_path: Path, planted: str, said: str) -> None:
    """So does a fourth test that might be unstable."""
    code, lines = run_tests(tmp_path, REAL + planted)

    assert (1, True) == (code, said in lines)


def test_without_processes_or_time_nothing_is_unstable(tmp_path: Path) -> None:
    """Such a test has no reason to fail that goes away by itself."""
    code, lines = run_tests(tmp_path, UNSTABLE.format(0), suite="quick")

    assert (1, True) == (code, "failed: tests/test_planted.py::test_unstable_0" in lines)


@pytest.mark.whole
def test_a_file_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    """It has no tests that could be run again."""
    code, _ = run_tests(tmp_path, "import nothing_of_this_name\n")

    assert 1 == code


def test_where_none_may_be_unstable_none_is_tried_again(tmp_path: Path) -> None:
    """As in `make test-all`."""
    code, lines = run_tests(tmp_path, REAL + UNSTABLE.format(0), UNSTABLE="0")

    assert (1, True) == (code, "failed: tests/test_planted.py::test_unstable_0" in lines)


SUITE = {
    "test_mark.py": 'import pytest\n@pytest.mark.skip(reason="no GPU here")\ndef test_it(): pass\n',
    "test_call.py": 'import pytest\ndef test_it():\n    pytest.skip("no GPU here")\n',
    "test_module.py": 'import pytest\npytest.skip("no GPU here", allow_module_level=True)\n',
    "test_expected.py": "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert False\n",
    "test_passes.py": "def test_it(): pass\n",
}


@pytest.mark.parametrize(
    ("ci", "code", "summary"),
    [("true", 1, "1 failed, 1 passed, 1 xfailed, 2 errors in"), ("", 0, "1 passed, 3 skipped, 1 xfailed in")],
)
def test_a_skip_fails_in_ci_alone(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    """Skipped by mark, by call or as a whole module: each fails in CI; an expected failure does not."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    for name, text in SUITE.items():
        (tmp_path / name).write_text(text)

    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            tmp_path,
        ],
        cwd=tmp_path,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (code, True) == (result.returncode, summary in result.stdout), result.stdout
    assert (6 if ci else 0) == result.stdout.count("in CI every test must. Skipped: no GPU here")
