"""Plays random scenarios and counts what came of them: `python -m tests.chaos`.

Every run is a line of build/chaos/runs.jsonl, and counted in docs/reference/chaos.json. Exits 1 when there
was a complaint.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.chaos import kubernetes, local, oracle, slurm, table
from tests.chaos.scenario import ATTACKS, Scenario, draw

_PLAYED = {"local": local.played, "slurm": slurm.played, "kubernetes": kubernetes.played}

_BROKEN = (slurm.ClusterError, kubernetes.ClusterError, OSError, RuntimeError, subprocess.SubprocessError)
"""What the harness itself may fail by."""


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=list(ATTACKS), default="local")
    parser.add_argument("--runs", type=int, default=20, help="how many scenarios (default: 20)")
    parser.add_argument("--seed", type=int, help="of the first scenario, the others follow (default: random)")
    parser.add_argument("-j", "--jobs", type=int, default=4, help="so many at once (default: 4)")
    parser.add_argument("--show", action="store_true", help="only print what the seeds mean")
    asked = parser.parse_args()
    first = random.randrange(10**6) if asked.seed is None else asked.seed
    scenarios = [draw(seed, asked.backend) for seed in range(first, first + asked.runs)]
    if asked.show:
        for each in scenarios:
            print(f"{each.seed} {each}")
        return 0
    print(f"seeds {first} to {first + asked.runs - 1}; once more: SEED={first} BACKEND={asked.backend}")
    with ThreadPoolExecutor(asked.jobs) as pool:
        lines = [line for line in pool.map(_run, scenarios) if line is not None]
    slurm.end()
    table.write(table.add(table.load(), lines))
    wrong = sum(bool(line["complaints"]) for line in lines)
    print(f"{len(lines)} runs, {wrong} with complaints")
    return 1 if wrong else 0


def _played(scenario: Scenario) -> dict[str, Any]:
    facts = _PLAYED[scenario.backend](scenario)
    return table.line(scenario, facts, oracle.complaints(scenario, facts))


def _run(scenario: Scenario) -> dict[str, Any] | None:
    """Play and judge it. None: the harness itself failed, which says nothing about the job."""
    try:
        line = _played(scenario)
    except _BROKEN:
        print(f"{scenario.seed} {scenario}\n{traceback.format_exc()}", flush=True)
        return None
    table.record(line)
    told = "; ".join(line["complaints"]) or line["end"]
    print(f"{'WRONG' if line['complaints'] else 'right'} {scenario.seed} {scenario}: {told}", flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())
