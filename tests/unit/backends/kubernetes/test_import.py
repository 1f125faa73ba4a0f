"""Nobody pays for a client that he does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY

ROOT = Path(__file__).resolve().parents[4]
_JOB = "{apiVersion: ddplaunch/v1, name: digits, image: x, command: [train.py]}"
_PROBE = """
import sys
from ddplaunch.cli.main import main
code = main(sys.argv[1:])
found = sorted(name for name in sys.modules if name.split(".")[0] in ("kubernetes", "urllib3", "websocket"))
sys.exit(f"{code} {found}" if code or found else 0)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["submit", "--help"],
        ["render", "-", "--to", "kubernetes"],
        ["submit", "-", "--to", "kubernetes", "--dry-run"],
        ["completion", "--words", "status", "kubernetes://"],
    ],
)
def test_the_client_is_not_imported(words: list[str], tmp_path: Path) -> None:
    """It takes most of a second: help, rendering and completion do without."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *words],
        input=_JOB,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "launcher"), "XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        timeout=BUSY * 60,
        check=False,
    )

    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (0, []) == (done.returncode, said)
