"""What a healthy job pays: its step time with and without ddplaunch around the same torchrun, in turn."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
STEPS = Path(__file__).with_name("programs") / "steps.py"
TICKS = os.sysconf("SC_CLK_TCK")


def run(folder: Path, runs: int) -> list[Line]:
    """Step-time ratios for 2 and 4 ranks, and the CPU that hub and supervisor take meanwhile."""
    lines = []
    for ranks in (2, 4):
        plain, watched = [], []
        shares: dict[str, list[float]] = {"hub": [], "run": []}
        for turn in range(runs):
            # Whoever goes first finds the caches colder: each does so every other time.
            for supervised in (turn % 2 == 0, turn % 2 == 1):
                out = folder / "step"
                command = _torchrun(ranks, out)
                if supervised:
                    watched.append(_supervised(command, out, folder, shares))
                else:
                    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                    plain.append(float(out.read_text()))
        ratios = [a / b for a, b in zip(watched, plain, strict=True)]
        ratio = statistics.median(ratios)
        times = [statistics.median(each) * 1e6 for each in (watched, plain)]
        detail = f"{times[0]:.0f} us against {times[1]:.0f} us a step"
        lines.append(Line(f"step time, {ranks} ranks, with / without", ratio, 1.01, detail=detail))
        for verb, name in (("hub", "hub"), ("run", "supervisor")):
            lines.append(
                Line(f"CPU of the {name}, {ranks} ranks", 100 * statistics.median(shares[verb]), 1.0, "%")
            )
    return lines


def _torchrun(ranks: int, out: Path) -> list[str]:
    python = str(ROOT / ".venv/bin/python")
    port = "29871"
    return [
        *(python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"),
        *(str(STEPS), "--out", str(out), "--begun", str(_begun(out))),
    ]


def _begun(out: Path) -> Path:
    return out.with_suffix(".begun")


def _supervised(command: Sequence[str], out: Path, folder: Path, shares: dict[str, list[float]]) -> float:
    """Seconds a step. `shares` gets the cores that hub and supervisor took while steps were made: what they
    cost to start is paid once, however long the job."""
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    for path in (out, _begun(out)):
        path.unlink(missing_ok=True)
    job = subprocess.Popen(
        [str(ROOT / ".venv/bin/ddplaunch"), "run", "--", *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    samples: dict[str, list[tuple[float, float]]] = {"hub": [], "run": []}
    while job.poll() is None:
        if _begun(out).exists() and not out.exists():
            for verb, taken in samples.items():
                taken.append((time.monotonic(), _cpu(job.pid, verb)))
        time.sleep(0.2)
    if job.returncode != 0:
        sys.exit(f"error: the supervised run ended with {job.returncode}")
    for verb, taken in samples.items():
        (begin, before), (end, after) = taken[0], taken[-1]
        shares[verb].append((after - before) / (end - begin))
    return float(out.read_text())


def _cpu(root: int, verb: str) -> float:
    """CPU seconds so far of the agent processes with that verb among the descendants of `root`."""
    found = 0.0
    for pid in _descendants(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if verb.encode() in words and b"--folder" in words:
            found += (int(fields[11]) + int(fields[12])) / TICKS
    return found


def _descendants(root: int) -> list[int]:
    found, queue = [], [root]
    while queue:
        parent = queue.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(pid) for pid in task.read_text().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found
