"""CPU time of `list` and `status` where a thousand jobs are known on this machine, and against one job.

A command waits for nothing, so on a machine without other work its CPU time is its time. The folders are
those of jobs that have ended, each of 64 nodes with a verdict.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from measure import Line, cpu_seconds, ratio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.unit.cli.ended_jobs import ended  # noqa: E402

from ddplaunch.agent.contract import Exit, JobStatus, NodeStatus, Phase, Verdict, codec  # noqa: E402

JOBS = 1000
NODES = 64
SECONDS = 2.0
RATIO = 10.0
"""For a thousand times as many jobs: most of a command on one job is the start of Python."""


def run(folder: Path, runs: int) -> list[Line]:
    """Measure each command on 1,000 jobs, in seconds, and against the same command on one job."""
    many, one = _jobs(folder / "many", JOBS), _jobs(folder / "one", 1)
    commands = [
        ["list"],
        ["list", "--all"],
        ["list", "--all", "--json"],
        ["status"],
        ["status", "digits"],
        ["status", f"local://digits/{JOBS // 2}"],
    ]
    lines = []
    for words in commands:
        name = f"{' '.join(words).replace('local://', '')}, {JOBS:,} jobs"
        taken = [cpu_seconds([*many, *words], tolerated=_CODES) for _ in range(runs + 1)][1:]
        lines.append(Line(name, statistics.median(taken), SECONDS, "s"))
    lines.append(ratio(f"list, {JOBS:,} jobs against one", [*many, "list"], [*one, "list"], RATIO, runs))
    return lines


_CODES = (0, 100)
"""`status` ends as its job did."""


def _jobs(folder: Path, number: int) -> list[str]:
    """Return the command line on a state folder of its own, with so many jobs that failed."""
    verdict = Verdict.of(
        "rank-failed", "rank 1 raised ValueError", "run", ranks=[1], victims=[0], hint="mend it"
    )
    nodes = [
        NodeStatus(node, f"n{node}", Phase.ENDED, 1.0, exit_code=Exit.WORKER_FAILED) for node in range(NODES)
    ]
    status = JobStatus(
        "digits", 0, Phase.ENDED, 2.0, nodes, 1.0, 2.0, verdicts=[verdict], exit_code=Exit.WORKER_FAILED
    )
    for each in range(1, number + 1):
        job = folder / "ddplaunch" / "jobs" / "digits" / str(each)
        ended(job, Exit.WORKER_FAILED, [verdict])
        codec.write(str(job / "run" / "status.json"), status)
    return ["env", f"XDG_STATE_HOME={folder}", os.fspath(ROOT / ".venv/bin/ddplaunch")]
