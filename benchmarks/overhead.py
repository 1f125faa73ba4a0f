"""What a healthy job pays: its step time with and without ddplaunch around the same torchrun.

The jobs live at the same time and take turns of seconds; whose turn it is not stands still, with all of its
processes. Two runs one after the other differ by 10 % on a shared machine, and would say nothing about 1 %. A
third job is as plain as the first: where the interval of their ratio is wide, or not around 1, the machine
was too busy.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from hook import interval
from measure import Line

ROOT = Path(__file__).resolve().parents[1]
STEPS = Path(__file__).with_name("programs") / "steps.py"
TICKS = os.sysconf("SC_CLK_TCK")
TURNS = 25
"""Of each job in a run."""
TURN = 2.0
"""Seconds."""
SETTLED = 0.4
"""Seconds of a turn that do not count: caches fill, and what was due while all stood still is done."""
PRODUCTS = 8
"""Of matrices, in a step that computes, so that it takes some 20 ms. Real ones take longer."""
START = 120.0
"""Seconds in which a job must have begun."""


@dataclass
class Job:
    """A training that makes steps until it is told to end."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    turns: list[tuple[float, float]] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=lambda: {"hub": 0.0, "run": 0.0})

    def begun(self) -> bool:
        if self.process.poll() is not None:
            sys.exit(f"error: the job {self.name} ended with {self.process.returncode}")
        return self.out.with_suffix(".begun").exists()

    def take_turn(self) -> None:
        """Go on for a turn, and stand still again."""
        self.signal(signal.SIGCONT)
        time.sleep(SETTLED)
        begin, before = time.perf_counter(), {verb: self._cpu(verb) for verb in self.cpu}
        time.sleep(TURN - SETTLED)
        self.turns.append((begin, time.perf_counter()))
        self.signal(signal.SIGSTOP)
        for verb, taken in before.items():
            self.cpu[verb] += self._cpu(verb) - taken

    def signal(self, number: int) -> None:
        for pid in _descendants(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> int:
        """Return its exit code, once it has ended."""
        self.out.with_suffix(".end").touch()
        self.signal(signal.SIGCONT)
        return self.process.wait(60)

    def steps(self) -> list[float]:
        """Seconds a step in each turn, of its median block."""
        blocks = json.loads(self.out.read_text())
        turns = [
            [step for begin, end, step in blocks if since <= begin and end <= until]
            for since, until in self.turns
        ]
        if not all(turns):
            sys.exit(f"error: the machine is too busy: the job {self.name} has no whole block in a turn")
        return [statistics.median(turn) for turn in turns]

    def _cpu(self, verb: str) -> float:
        """CPU seconds so far of the agent's processes with that verb."""
        found = 0.0
        for pid in _descendants(self.process.pid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if verb.encode() in words and b"--folder" in words:
                found += (int(fields[11]) + int(fields[12])) / TICKS
        return found


def run(folder: Path, runs: int) -> list[Line]:
    """Step-time ratios, with intervals of 95 %, and the CPU of hub and supervisor."""
    lines: list[Line] = []
    # Steps that do nothing but communicate pay most: they have hardly any time of their own.
    for ranks, words in ((2, ("--products", str(PRODUCTS), "--steps", "5")), (2, ()), (4, ())):
        ratios: list[float] = []
        again: list[float] = []
        steps: list[float] = []
        shares: dict[str, list[float]] = {"hub": [], "run": []}
        for number in range(runs):
            plain, watched, other = _side_by_side(folder / f"{len(lines)}-{number}", ranks, words)
            ratios += _ratios(watched.steps(), plain.steps())
            again += _ratios(other.steps(), plain.steps())
            steps += plain.steps()
            for verb, share in shares.items():
                share.append(watched.cpu[verb] / (TURNS * (TURN - SETTLED)))
        detail = f"{interval(ratios)}, {len(ratios)} pairs; without / without {interval(again)}"
        name = f"{ranks} ranks, step of {1000 * statistics.median(steps):.1f} ms"
        limit = 1.005 if words else 1.01
        lines.append(
            Line(f"step time, {name}, with / without", statistics.median(ratios), limit, detail=detail)
        )
        for verb, whose in (("hub", "hub"), ("run", "supervisor")):
            lines.append(Line(f"CPU of the {whose}, {name}", 100 * statistics.median(shares[verb]), 1.0, "%"))
    return lines


def _ratios(watched: list[float], plain: list[float]) -> list[float]:
    """Each turn against the mean of the other job's turns before and after it: a machine that drifts cancels
    out. `plain` has one turn more, since it begins and ends."""
    return [step / ((a + b) / 2) for step, (a, b) in zip(watched, pairwise(plain), strict=True)]


def _side_by_side(folder: Path, ranks: int, words: Sequence[str]) -> tuple[Job, Job, Job]:
    folder.mkdir()
    jobs = plain, watched, again = (
        _start(folder, ranks, "plain", 29871, words),
        _start(folder, ranks, "supervised", 29872, words),
        _start(folder, ranks, "again", 29874, words),
    )
    until = time.monotonic() + START
    while not all(job.begun() for job in jobs):
        if time.monotonic() > until:
            sys.exit(f"error: no steps were made in {START:.0f} s")
        time.sleep(0.1)
    for job in jobs:
        job.signal(signal.SIGSTOP)
    try:
        for _ in range(TURNS):
            plain.take_turn()
            watched.take_turn()
            again.take_turn()
        plain.take_turn()
    finally:
        codes = {job.name: job.end() for job in jobs}  # all of them, before one is complained about
    for job in jobs:
        if codes[job.name] != 0:
            output = job.out.with_suffix(".log").read_text(errors="replace")
            sys.exit(f"{output}\nerror: the job {job.name} ended with {codes[job.name]}")
    return jobs


def _start(folder: Path, ranks: int, name: str, port: int, words: Sequence[str]) -> Job:
    out = folder / name
    python = str(ROOT / ".venv/bin/python")
    torchrun = [
        *(python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"),
        *(str(STEPS), "--out", str(out), *words),
    ]
    around = [str(ROOT / ".venv/bin/ddplaunch"), "run", "--"] if name == "supervised" else []
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [*around, *torchrun],
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Job(name, process, out)


def _descendants(root: int) -> list[int]:
    """With `root` itself, before its children."""
    found, queue = [root], [root]
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
