"""What a command loses by `ddplaunch run`: time to its first line, and from there to its end.

Plain runs and runs under ddplaunch take turns. Before the first line is the gate, for a second. After it
nothing may be slower; the end waits for ddplaunch to tidy up, which is part of the whole run.
"""

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
BIN = ROOT / ".venv/bin"
PROGRAM = Path(__file__).with_name("programs") / "first_line.py"
PORT = 29877
KINDS: dict[str, tuple[str, ...]] = {
    "python": (str(BIN / "python"), str(PROGRAM)),
    "torchrun": (
        *(str(BIN / "python"), "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={PORT}"),
        *(str(PROGRAM), "--trains"),
    ),
}
GATE, END = 2.5, 1.0
"""Seconds that may be added before the first line, and after the last."""
Times = tuple[float, float, float]
"""Seconds to the first line, from there to the last, and from there to the end."""


def run(folder: Path, runs: int) -> list[Line]:
    """Seconds added before the first line and after the last, and the ratio in between."""
    env = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    lines = []
    for name, words in KINDS.items():
        ours = (str(BIN / "ddplaunch"), "run", "--", *words)
        pairs = [(_timed(ours, env), _timed(words, env)) for _ in range(runs + 1)][1:]  # the first compiles
        lines += _lines(name, pairs)
    return lines


def _lines(name: str, pairs: Sequence[tuple[Times, Times]]) -> list[Line]:
    first, last = (statistics.median(under[at] - plain[at] for under, plain in pairs) for at in (0, 2))
    between = statistics.median(under[1] / plain[1] for under, plain in pairs)
    whole = statistics.median(sum(under) / sum(plain) for under, plain in pairs)
    plain = statistics.median(sum(plain) for _, plain in pairs)
    return [
        Line(f"{name}, to its first line, under - plain", first, GATE, "s"),
        Line(f"{name}, from first to last line, under / plain", between, 1.05),
        Line(f"{name}, from its last line to the end, under - plain", last, END, "s"),
        Line(f"{name}, whole, under / plain", whole, 1 + (GATE + END) / plain, detail=f"plain {plain:.1f} s"),
    ]


def _timed(words: Sequence[str], env: dict[str, str]) -> Times:
    begin = time.monotonic()
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    seen = {}
    for line in process.stdout:
        for word in (b"begins", b"ends"):
            if word in line:
                seen[word] = time.monotonic()
    code = process.wait()
    end = time.monotonic()
    if code != 0 or len(seen) < 2:
        sys.exit(f"error: {' '.join(words)} ended with {code}, and has printed {len(seen)} of 2 lines")
    return seen[b"begins"] - begin, seen[b"ends"] - seen[b"begins"], end - seen[b"ends"]
