"""`make test` leaves tests out, and no verdict with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.faults import table

from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]


def test_make_test_provokes_every_verdict(tmp_path: Path) -> None:
    """On one backend at least, by a test that is not left to `make test-all`."""
    listed = tmp_path / "faults"
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "tests.faults.plugin", f"--faults={listed}"]
    done = subprocess.run(
        [sys.executable, *words, "-p", "no:cacheprovider", "-m", "not whole", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr

    provoked = {json.loads(line)[0] for line in listed.read_text().splitlines()}
    assert CATALOGUE.keys() - table.RECORDED == provoked
