"""What the tests of the repository itself share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "launcher" / "ddplaunch"


def tracked(*patterns: str) -> list[Path]:
    """Files in git that match, links left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """A copy of the package and of the rules, to break."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "launcher" / "ddplaunch", ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture(name="python39", scope="session")
def _python39() -> str:
    """A real Python 3.9, the oldest that the agent promises to run on."""
    found = subprocess.run([ROOT / "scripts" / "find-python39"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()
