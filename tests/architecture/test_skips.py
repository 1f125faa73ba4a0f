"""In CI a test that does not run fails, so that no guard goes missing quietly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
