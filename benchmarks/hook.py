"""What the hook costs the processes in which it rides: a call, a step, and the start of a Python.

Each figure is the median over pairs that were measured side by side, with the interval in which that median
lies at 95 %. Beside it stands the same interval for pairs that do not differ: where it is wide, or not around
zero, the machine was too busy.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Line

from ddplaunch.agent.supervisor.launch import LaunchContext, with_hook

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(__file__).with_name("programs") / "ring.py"
Times = dict[str, float]
"""Seconds, by the kind of what was timed: `recorded`, `plain`, and `again`, which is plain once more."""
ROUNDS = 600
"""In a job."""
STARTS = 20
"""Pairs of Python processes in a run."""


def run(folder: Path, runs: int) -> list[Line]:
    """Microseconds a call and a wait, the share of a step, milliseconds at the start of another Python."""
    found = [_job(folder / f"{number}.json") for number in range(runs)]
    in_loop = _differences([times for job in found for times in job["in_loop"]])
    in_step = _differences([times for job in found for times in job["in_step"]])
    in_wait = _differences([times for job in found for times in job["in_wait"]])
    in_async = _differences([times for job in found for times in job["in_async"]])
    # A busy machine makes a step longer, and the share smaller: its CPU time stands beside it.
    step, cpu = (
        statistics.median(each)
        for each in zip(*(step for job in found for step in job["steps"]), strict=True)
    )
    of = f"a call in a step of {1000 * step:.1f} ms, {1000 * cpu:.1f} of them on a CPU"
    return [
        _line("ring, a call in a loop", "us", 2.0, 1e6, *in_loop),
        _line(f"ring, {of}", "%", 0.5, 100 / step, *in_step),
        _line("ring, a wait for an asynchronous call", "us", 2.0, 1e6, *in_wait),
        _line("ring, an asynchronous call and its wait", "us", 10.0, 1e6, *in_async),
        _line("hook, a Python that is no rank", "ms", 5.0, 1000, *_starts(folder, STARTS * runs)),
    ]


def _differences(times: list[Times]) -> tuple[list[float], list[float]]:
    """Seconds that recording adds, and that nothing adds."""
    return (
        [each["recorded"] - each["plain"] for each in times],
        [each["again"] - each["plain"] for each in times],
    )


def _line(name: str, unit: str, limit: float, scale: float, added: list[float], nothing: list[float]) -> Line:
    """`scale`: how many of the unit are a second."""
    added, nothing = [scale * each for each in added], [scale * each for each in nothing]
    detail = f"{interval(added)}, {len(added)} pairs; nothing adds {interval(nothing)}"
    return Line(name, statistics.median(added), limit, unit, detail)


def interval(values: Sequence[float]) -> str:
    """Where the median lies at 95 %, by the order of the values alone."""
    ordered, count = sorted(values), len(values)
    reach = 0.98 * count**0.5
    low, high = max(0, int(count / 2 - reach)), min(count - 1, int(count / 2 + reach))
    return f"{ordered[low]:.3f} to {ordered[high]:.3f}"


def _job(out: Path) -> dict[str, list[Any]]:
    """Two ranks under ddplaunch, as anybody's."""
    python = str(ROOT / ".venv/bin/python")
    torchrun = [python, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29873"]
    program = [str(PROGRAM), "--rounds", str(ROUNDS), "--out", str(out)]
    subprocess.run(
        [str(ROOT / ".venv/bin/ddplaunch"), "run", "--", *torchrun, *program],
        env={**os.environ, "XDG_STATE_HOME": str(out.parent / "state")},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    found: dict[str, list[Any]] = json.loads(out.read_text())
    return found


def _starts(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """CPU seconds that the hook takes from a Python that is no rank, and that nothing takes."""
    place = LaunchContext(str(folder), 0)
    place.prepare()
    plain = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
    hooked = with_hook(plain, place, "nobody-listens")
    for env in (plain, hooked):
        _start(env)  # the first compiles
    times = []
    for _ in range(rounds):
        kinds = random.sample([("recorded", hooked), ("plain", plain), ("again", plain)], 3)
        times.append({kind: _start(env) for kind, env in kinds})
    return _differences(times)


def _start(env: dict[str, str]) -> float:
    """CPU seconds: what else runs on this machine must not decide."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], env)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit("error: Python did not start")
    return used.ru_utime + used.ru_stime
