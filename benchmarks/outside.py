"""How soon `ddplaunch diagnose pid:…` answers about eight ranks of torchrun that wait for one of them.

From the call of the command to its end, with py-spy, as on a machine without it, and as for a user who may
not trace.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]

from tests.corpus import plain  # noqa: E402
from tests.corpus.faults import Fault  # noqa: E402

SECONDS = 10.0
RANKS = 8
_START = 300.0
_HANGS_FOR = 13.0
"""Seconds before the first call: a hang is one after ten."""
_HANG = Fault("rank_in_user_code", "rank-in-user-code", (0,), tuple(range(1, RANKS)), nproc=RANKS)
_WAYS = {
    "py-spy": "from outside, with py-spy",
    "none": "from outside, without py-spy",
    "forbidden": "from outside, without the right to trace",
}


def run(folder: Path, runs: int) -> list[Line]:
    """Return a line for each way to look: the median of `runs` calls."""
    if os.getuid() != 0:
        raise SystemExit("only root can hide py-spy from a command, as on a machine that does not have it")
    with plain.job(_HANG, folder, {"OMP_NUM_THREADS": "1"}) as (torchrun,):
        deadline = time.monotonic() + _START
        while not list(folder.glob("stopped-*")):
            if torchrun.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((folder / "output-0").read_text())
            time.sleep(0.2)  # between two looks for the note that the rank stands still
        time.sleep(_HANGS_FOR)  # a shorter stop would not be called a hang
        return [_line(torchrun.pid, way, runs) for way in _WAYS]


def _line(torchrun: int, way: str, runs: int) -> Line:
    took = []
    for _ in range(runs):
        began = time.monotonic()
        answer = plain.diagnosed(torchrun, way)
        took.append(time.monotonic() - began)
    verdicts = answer.get("verdicts") or []
    verdict = f"{verdicts[0]['code']} {verdicts[0]['ranks']}" if verdicts else "no verdict"
    detail = f"{RANKS} ranks on {os.cpu_count()} cores, {min(took):.1f} to {max(took):.1f} s; {verdict}"
    return Line(_WAYS[way], statistics.median(took), SECONDS, " s", detail)
