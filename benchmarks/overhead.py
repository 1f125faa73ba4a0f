"""Compares the step time of a healthy job while ddplaunch watches it with that while it does not.

Two jobs side by side differ by some per cent, for as long as they live, by where their memory happens to lie:
that would hide half a per cent. So one job takes turns of a second with itself. In a turn that is plain its
ranks call torch past the hook, and every process of ddplaunch stands still. A turn is compared with the one
beside it: a machine that serves others as well changes its speed by some per cent within seconds. Which of
the two comes first is drawn: such changes may come at every other turn. The same among plain turns alone
shows the noise, and a little more, for they lie farther apart.

A ratio below one is no gain: each rank has one core for its main thread and those of Gloo, and a delay of
some microseconds between two calls, by the hook or by anything else, changes which of them runs next. Steps
were one to two per cent shorter with such a delay, also without ddplaunch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hook import interval
from measure import Line

ROOT = Path(__file__).resolve().parents[1]
STEPS = Path(__file__).with_name("programs") / "steps.py"
TICKS = os.sysconf("SC_CLK_TCK")
TURNS = 24
"""Turns of each kind in a run, which takes some 50 s; an even number, because plain turns are compared in
pairs. After twice as many, with `--runs 2`, the interval is some 0.5 % wide."""
TURN = 1.0
"""Seconds: in each the supervisor asks its ranks once, as it always does in a second."""
COMPUTES = ("--steps", "5", "--rows", "128", "--products", "300")
"""Steps of some 25 ms: real ones take longer. Matrices that a core keeps to itself: with larger ones the step
shows what others on the machine do to its memory."""
ON_GPU = ("--steps", "5", "--rows", "4096", "--products", "8", "--backend", "nccl")
TRAINS = {b"torch.distributed.run", str(STEPS).encode()}
"""Words that show a process to be torchrun or one of its ranks: one of them is among the two after Python."""
PORT = 29871
START = 120.0
"""Seconds in which the job must have begun."""
Turn = tuple[float, float]
"""Begin and end of what counts of it, by the machine's clock."""


@dataclass
class Job:
    """A training job under ddplaunch. It makes steps until its .end file is there."""

    process: subprocess.Popen[bytes]
    out: Path
    turns: dict[str, list[Turn]] = field(default_factory=lambda: {"watched": [], "plain": []})
    cpu: dict[str, float] = field(default_factory=lambda: {"hub": 0.0, "run": 0.0})
    """CPU seconds of the agent's processes in turns that are watched, by their verb."""

    def begin(self) -> None:
        until = time.monotonic() + START
        while not self.out.with_suffix(".begun").exists():
            if self.process.poll() is not None:
                sys.exit(f"error: the job ended with {self.process.returncode}")
            if time.monotonic() > until:
                sys.exit(f"error: no steps were made in {START:.0f} s")
            time.sleep(0.1)

    def take_turn(self, kind: str) -> None:
        plain = kind != "watched"
        if plain:
            self.out.with_suffix(".plain").touch()
        else:
            self.out.with_suffix(".plain").unlink(missing_ok=True)
        self.signal(signal.SIGSTOP if plain else signal.SIGCONT)
        begin, before = time.perf_counter(), {verb: self._cpu(verb) for verb in self.cpu}
        time.sleep(TURN)
        self.turns[kind].append((begin, time.perf_counter()))
        for verb, taken in before.items():
            self.cpu[verb] += 0.0 if plain else self._cpu(verb) - taken

    def signal(self, number: int) -> None:
        """Send a signal to every process of ddplaunch, and to none of torchrun's."""
        for pid in _descendants(self.process.pid):
            if not TRAINS & set(_words(pid)[1:3]):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self) -> None:
        """Let it end, and wait for it."""
        self.out.with_suffix(".end").touch()
        self.signal(signal.SIGCONT)  # also when the benchmark is interrupted in a plain turn
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            code = self.process.wait()
        if code != 0:
            sys.exit(
                f"{self.out.with_suffix('.log').read_text(errors='replace')}\nerror: it ended with {code}"
            )

    def steps(self) -> dict[str, list[float]]:
        """Return seconds a step in each turn, by kind of turn."""
        blocks = json.loads(self.out.read_text())
        found: dict[str, list[float]] = {}
        for kind, turns in self.turns.items():
            its = [
                [seconds for begin, end, seconds in blocks if since <= begin and end <= until]
                for since, until in turns
            ]
            if not all(its):
                sys.exit("error: the machine is too busy: a turn has no whole block")
            found[kind] = [statistics.mean(turn) for turn in its]
        return found

    def _cpu(self, verb: str) -> float:
        """CPU seconds so far of the agent's processes with that verb."""
        found = 0.0
        for pid in _descendants(self.process.pid):
            words = _words(pid)
            if verb.encode() in words and b"--folder" in words:
                with suppress(OSError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    found += (int(fields[11]) + int(fields[12])) / TICKS
        return found


def run(folder: Path, runs: int) -> list[Line]:
    """Step-time ratios, with intervals of 95 %, and the CPU of hub and supervisor."""
    # Steps that do nothing but communicate pay most: they have hardly any time of their own.
    on_gpu = [(2, ON_GPU)] if Path("/dev/nvidia0").exists() else []
    kinds = ((2, COMPUTES), *on_gpu, (2, ()), (4, ()))
    return [
        line
        for number, (ranks, words) in enumerate(kinds)
        for line in figures(folder / str(number), runs, ranks, words)
    ]


def figures(folder: Path, runs: int, ranks: int, words: Sequence[str]) -> list[Line]:
    """Return what ddplaunch costs one kind of job. `words`: arguments of its program."""
    folder.mkdir()
    ratios: list[float] = []
    noise: list[float] = []
    steps: list[float] = []
    shares: dict[str, list[float]] = {"hub": [], "run": []}
    for number in range(runs):
        job = _job(folder / str(number), ranks, words)
        its = job.steps()
        ratios += _ratios(its["watched"], its["plain"])
        noise += _ratios(its["plain"][::2], its["plain"][1::2])
        steps += its["plain"]
        for verb, share in shares.items():
            share.append(job.cpu[verb] / sum(end - begin for begin, end in job.turns["watched"]))
    name = f"{ranks} ranks, {'NCCL, ' * ('nccl' in words)}step of {1000 * statistics.median(steps):.1f} ms"
    limit = 1.005 if words else 1.01
    return [
        Line(
            f"step's time, {name}, with / without",
            statistics.median(ratios),
            limit,
            detail=f"{interval(ratios)}, {len(ratios)} pairs; without / without {interval(noise)}",
        ),
        *(
            Line(f"CPU of the {whose}, {name}", 100 * statistics.median(shares[verb]), 1.0, "%")
            for verb, whose in (("hub", "hub"), ("run", "supervisor"))
        ),
    ]


def _ratios(steps: list[float], plain: list[float]) -> list[float]:
    return [step / other for step, other in zip(steps, plain, strict=True)]


def _job(folder: Path, ranks: int, words: Sequence[str]) -> Job:
    """Return a job that has taken its turns, and has ended."""
    folder.mkdir()
    out = folder / "steps"
    python = str(ROOT / ".venv/bin/python")
    torchrun = [python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={PORT}"]
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(ROOT / ".venv/bin/ddplaunch"),
                "run",
                "--",
                *torchrun,
                str(STEPS),
                "--out",
                str(out),
                *words,
            ],
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    job = Job(process, out)
    try:
        job.begin()
        for _ in range(TURNS):
            for kind in random.sample(["plain", "watched"], 2):
                job.take_turn(kind)
    finally:
        job.end()
    return job


def _words(pid: int) -> list[bytes]:
    """Return the command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


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
