"""Runs every program of the corpus that hangs with `kill_after` of 20 s: `python -m tests.corpus.kept`.

Prints for each how long after its fault the job had ended, and lists those not ended within 40 s. Exits 1 if
there are any. `--only NAME …` for some, `-j` for how many at a time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.corpus.cases import cases
from tests.corpus.faults import Fault
from tests.corpus.harness import run

from ddplaunch.agent.contract import Exit, WatchdogPlan
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

KILL_AFTER, WITHIN = 20.0, 40.0
PLAN = WatchdogPlan(notice_after=5.0, kill_after=KILL_AFTER)


@dataclass(frozen=True)
class Kept:
    """How one job ended. `seconds`: from its fault, or the notice of it, to its end; None: neither came."""

    name: str
    exit_code: int
    code: str
    seconds: float | None

    @property
    def well(self) -> bool:
        return self.seconds is not None and self.seconds <= WITHIN


def hanging() -> list[Fault]:
    """The faults that end nothing by themselves."""
    found = [case.job for case in cases() if isinstance(case.job, Fault)]
    return [each for each in found if CATALOGUE[each.code].exit_code == Exit.HANG and not each.asked]


def kept(fault: Fault) -> Kept:
    """Run the job of one fault to its end."""
    with tempfile.TemporaryDirectory(prefix="ddplaunch-kept-") as folder:
        try:
            outcome = run(fault, Path(folder), watchdog=PLAN)
        except (OSError, AssertionError, subprocess.TimeoutExpired) as error:
            return Kept(fault.name, -1, f"{type(error).__name__}: {error}"[:80], None)
        ended = time.time()
        stopped = [float(path.read_text()) for path in Path(folder).glob("stopped-*")]
    since = max(stopped) if stopped else outcome.alarm_at  # not every program notes the moment of its fault
    return Kept(
        fault.name, outcome.exit_code, outcome.code, None if since is None else round(ended - since, 1)
    )


def main() -> int:
    """Run them, and return how the command ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("-j", "--jobs", type=int, default=2, help="programs at a time (default: 2)")
    args = parser.parse_args()
    faults = [each for each in hanging() if not args.only or each.name in args.only]
    late = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for each in pool.map(kept, faults):
            print(f"{each.name:32} {each.code:24} exit {each.exit_code:3}  {each.seconds} s", flush=True)
            late += [] if each.well else [each.name]
    print(f"{len(faults) - len(late)} of {len(faults)} ended within {WITHIN:.0f} s", *late, sep="\n  ")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
