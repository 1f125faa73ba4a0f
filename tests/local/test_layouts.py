"""Every layout of a training runs here as it lies, and `outputs` finds what it wrote, byte for byte."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.layouts.table import EVERY_DAY, LAYOUTS, Layout, read, wrong
from tests.local.conftest import Desk, eventually

HERE = [
    pytest.param(each, id=each.name, marks=[] if each.name in EVERY_DAY else [pytest.mark.whole])
    for each in LAYOUTS
    if "local" in each.on
]


@pytest.mark.parametrize("layout", HERE)
@pytest.mark.parametrize("end", ["by itself", "kill -9 of the agent"])
def test_what_a_layout_writes_is_found(desk: Desk, layout: Layout, end: str) -> None:
    """Also when the node's supervisor is killed while the ranks stand."""
    folder = desk.folder / "code"
    stands = {"env": {**layout.keys.get("env", {}), "STANDS": "1"}} if end != "by itself" else {}
    job = layout.lay(folder, nproc_per_node=2, python=sys.executable, **stands)
    done = desk.call("submit", str(job), *(["--wait"] if end == "by itself" else []))
    if end == "by itself":
        assert done.returncode == 0, done.stderr
    else:
        eventually(lambda: desk.call("logs", "--tail", "3").stdout.count("] up") == 2, "two ranks")
        os.kill(supervisor(desk), signal.SIGKILL)
        desk.call("watch")
    copied = desk.call("outputs", "--copy", str(desk.folder / "copied"))

    assert copied.returncode == 0, copied.stderr
    assert [] == wrong(layout, read(desk.folder / "copied"))


def supervisor(desk: Desk) -> int:
    """Return the process of the node's supervisor."""
    for pid in desk.processes():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"run" in words and any(word.endswith(b"agent.pyz") for word in words):
            return pid
    pytest.fail("no supervisor runs")
