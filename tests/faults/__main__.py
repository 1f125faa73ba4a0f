"""Provokes every fault there is a test for, so many times, and measures: `python -m tests.faults`.

Writes docs/reference/faults.json. Exits 1 when fewer than 98 of 100 verdicts were right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.faults import table

RIGHT = 0.98
OUTCOMES = table.ROOT / "build/faults/outcomes.jsonl"
_PROCESSES = ("-n", str(os.cpu_count() or 2))
_SUITES: dict[str, list[tuple[str, ...]]] = {
    "local": [
        (*_PROCESSES, "-m", "not slow and not corpus", "tests", "--ignore=tests/cluster"),
        ("-m", "slow or corpus", "tests", "--ignore=tests/cluster"),  # they need the cores
    ],
    "slurm": [("-n", "2", "tests/cluster/slurm")],
    "kubernetes": [
        (
            "-n",
            "2",
            "--maxschedchunk",
            "1",
            "--timeout",
            "900",
            "-m",
            "not extras",
            "tests/cluster/kubernetes",
        )
    ],
}


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=5, help="of each test; 0: only see which there are (default: 5)"
    )
    parser.add_argument("--backend", choices=table.BACKENDS, help="only this one (default: all)")
    parser.add_argument("--where", choices=table.PARTS, help="only causes of the gate, or of a run")
    asked = parser.parse_args()
    backends = [asked.backend] if asked.backend else list(table.BACKENDS)
    OUTCOMES.parent.mkdir(parents=True, exist_ok=True)
    OUTCOMES.unlink(missing_ok=True)
    for backend in backends:
        for suite in _SUITES[backend]:
            _pytest(backend, "--collect-only", "-q", "-q", "-p", "no:xdist", *_without_processes(suite))
    where = ["--faults-where", asked.where] if asked.where else []
    loads = []
    for number in range(asked.runs):
        for backend in backends:
            for suite in _SUITES[backend]:
                print(f"== {backend}, {number + 1} of {asked.runs}", flush=True)
                _pytest(backend, "-q", *where, *suite)
                loads.append(os.getloadavg()[0])
    return _write(backends, [asked.where] if asked.where else list(table.PARTS), asked.runs, loads)


def _pytest(backend: str, *words: str) -> None:
    own = [sys.executable, "-m", "pytest", "-p", "tests.faults.plugin", "--faults", str(OUTCOMES)]
    done = subprocess.run([*own, "--faults-on", backend, *words], cwd=table.ROOT, check=False)
    if done.returncode not in (0, 1, 5):  # all passed, some failed, there was none
        raise SystemExit(f"pytest ended with {done.returncode}")


def _without_processes(suite: tuple[str, ...]) -> list[str]:
    """Nothing is handed out while tests are only looked for."""
    words = list(suite)
    for option in ("-n", "--maxschedchunk"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return words


def _write(backends: list[str], parts: list[str], runs: int, loads: list[float]) -> int:
    old = table.load() if table.MEASURED.exists() else {"measured": {}, "faults": {}}
    lines = [json.loads(line) for line in OUTCOMES.read_text("utf-8").splitlines()]
    new = table.merge(old, lines, backends)
    if runs:
        load = f"{min(loads):.1f} to {max(loads):.1f}"
        about = {"runs": runs, "cpus": os.cpu_count(), "load": load}
        for backend in backends:
            new["measured"].setdefault(backend, {}).update(dict.fromkeys(parts, about))
    Path(table.MEASURED).write_text(table.text(new), "utf-8")
    tries = [line for line in lines if line[3] is not None]
    hits = sum(line[3] for line in tries)
    for code, backend, test, hit, _ in tries:
        if not hit:
            print(f"miss: {code} on {backend}: {test}")
    print(f"{hits} of {len(tries)} verdicts were right; {table.MEASURED.relative_to(table.ROOT)} is written")
    return 0 if hits >= RIGHT * len(tries) else 1


if __name__ == "__main__":
    sys.exit(main())
