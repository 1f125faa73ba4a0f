"""`kill_after` of a rank that shows nothing new: it is kept, whatever the rank does meanwhile."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import Desk

PROGRAM = """
import multiprocessing, time
import torch
import torch.distributed as dist

def burn():
    total = 0
    while True:
        total = (total + 1) % 7

dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    open("stopped", "w").write(str(time.time()))
    {doing}
dist.all_reduce(torch.ones(1))
"""
JOINS = "child = multiprocessing.get_context('fork').Process(target=burn); child.start(); child.join()"
KILL_AFTER = 12.0


@pytest.mark.parametrize(
    "doing", [pytest.param(JOINS, id="joins", marks=pytest.mark.whole), pytest.param("burn()", id="computes")]
)
def test_a_rank_that_others_wait_for_is_ended_in_time(desk: Desk, doing: str) -> None:
    """It joins a process that burns CPU, or burns CPU itself: at kill_after the evidence is taken."""
    (desk.folder / "program.py").write_text(PROGRAM.format(doing=doing))
    torchrun = str(Path(sys.executable).parent / "torchrun")
    watchdog = ("--notice-after", "4s", "--kill-after", f"{KILL_AFTER:.0f}s")
    result = desk.call("run", *watchdog, "--", torchrun, "--nproc-per-node=2", "program.py")
    found = json.loads(desk.call("diagnose", "local://run", "--json").stdout)
    took = found["evidence"]["at"] - float((desk.folder / "stopped").read_text())

    assert 105 == result.returncode, result.stderr
    assert ("rank-in-user-code", [0]) == (found["verdicts"][0]["code"], found["verdicts"][0]["ranks"])
    assert KILL_AFTER - 1 < took < 2 * KILL_AFTER + BUSY
