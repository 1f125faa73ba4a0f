"""Feeds broken and hostile inputs to everything that reads: `python -m tests.fuzz --inputs 1000000`.

An input is known by its target and its seed, which `--target` and `--seed` repeat. Exits 1 for a bug.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from tests.fuzz import found, runner, target
from tests.fuzz.runner import Report


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of all targets together (default: 10000)")
    parser.add_argument("--target", choices=target.WAYS, help="only this one (default: all)")
    parser.add_argument("--seed", type=int, help="show this one input of the target, and what becomes of it")
    parser.add_argument("--first", type=int, default=0, help="seed to begin with (default: 0)")
    parser.add_argument("--keep", metavar="NAME", help="with --seed: keep the input as a test of that name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all CPUs)")
    parser.add_argument("--seconds", type=float, default=runner.SECONDS, help="for one input (default: 1)")
    asked = parser.parse_args()
    if asked.seed is not None:
        if asked.target is None:
            parser.error("--seed is of a --target")
        return _replay(asked.target, asked.seed, asked.keep)
    names = [asked.target] if asked.target else list(target.WAYS)
    whole = sum(target.WAYS[name].share for name in names)
    shares = {
        name: range(asked.first, asked.first + max(1, asked.inputs * target.WAYS[name].share // whole))
        for name in names
    }
    reports = {name: Report(name) for name in names}
    for report in runner.run(shares, asked.jobs, asked.seconds):
        known = {bug.where for bug in reports[report.target].bugs}
        reports[report.target].add(report)
        for bug in report.bugs:
            if bug.where not in known:
                print(f"\n{bug.where}\n{bug.text}\nagain: make fuzz TARGET={bug.target} SEED={bug.seed}\n")
        if reports[report.target].inputs >= len(shares[report.target]):
            print(reports[report.target].line(), flush=True)
    bugs = sum(len(report.bugs) for report in reports.values())
    print(f"{sum(report.inputs for report in reports.values()):,} inputs, {bugs} bugs")
    return 1 if bugs else 0


def _replay(name: str, seed: int, keep: str | None) -> int:
    given = runner.made(name, seed)
    print(json.dumps(given, indent=1)[:20_000])
    if keep:
        print(f"kept in {found.keep(name, keep, given)}")
    report = runner.replay(name, seed)
    for bug in report.bugs:
        print(bug.text)
    print(report.line())
    return 1 if report.bugs else 0


if __name__ == "__main__":
    sys.exit(main())
