"""Runs the daily benchmarks, or those that you name: `python benchmarks/run.py [NAME …] [--runs N]`.

Prints one line per figure, with its limit, and exits 1 when one is over it. Ratios are taken pair by pair in
the same run, so that a machine that drifts does not decide.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

DEFAULT_RUNS = {
    "startup": 9,
    "many": 3,
    "overhead": 1,
    "hook": 1,
    "transparent": 3,
    "gate": 5,
    "containers": 3,
    "scale": 2,
    "evidence": 3,
    "outside": 3,
    "bundle": 2,
    "pods": 3,
    "verdicts": 1,
}
BY_NAME = ("bundle", "pods", "verdicts")
"""Not daily, as each takes minutes: a peer's tool on 1024 ranks, a Kubernetes, torch's own waits. The others
take some 14 minutes together.
"""


def main() -> int:
    """Run what was asked for; 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(DEFAULT_RUNS)} (default: all but {', '.join(BY_NAME)})",
    )
    parser.add_argument("--runs", type=int, help="pairs to measure")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(DEFAULT_RUNS))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(DEFAULT_RUNS)}")
    # A benchmark that is cut off ends what it has started, and lets go on what it has stopped: its `finally`.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    kept = True
    for name in arguments.names or [each for each in DEFAULT_RUNS if each not in BY_NAME]:
        with tempfile.TemporaryDirectory() as folder:
            for line in import_module(name).run(Path(folder), arguments.runs or DEFAULT_RUNS[name]):
                print(line, flush=True)
                kept = kept and line.kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
