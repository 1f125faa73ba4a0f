"""Hosts of their own, and a munged of this test alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.conftest import _network as _network


@pytest.fixture(name="munged")
def _munged(tmp_path: Path) -> Iterator[Path]:
    """Its socket, which every user may use."""
    program = shutil.which("munged", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None or os.geteuid() != 0:
        pytest.skip("needs root and munged (scripts/system-packages installs it)")
    # A socket's path is short, and other users must reach it.
    place = Path(tempfile.mkdtemp(prefix="ddplaunch-munge-", dir="/tmp"))
    place.chmod(0o755)
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o400)
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    words = [
        program,
        "--foreground",
        "--force",
        *(f"--{name}={place / file}" for name, file in files.items()),
    ]
    daemon = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    yield place / "socket"
    daemon.terminate()
    daemon.wait(10)
    shutil.rmtree(place)
