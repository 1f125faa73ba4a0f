"""The fuzzer itself, a sample of what it runs, and what it has found."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.busy import BUSY
from tests.fuzz import found, runner, target
from tests.fuzz.found import Found
from tests.fuzz.target import ROOT, WAYS, Target, Way

_SAMPLE = 1000


def test_a_sample_of_inputs_brings_no_bug_to_light() -> None:
    """A thousand inputs of all kinds: `make fuzz` runs as many as are asked for."""
    words = ["--inputs", str(_SAMPLE), "--jobs", "1", "--seconds", str(2 * BUSY)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert all(f"\n{name} " in f"\n{done.stdout}" for name in WAYS)


@pytest.mark.parametrize("each", found.every(), ids=lambda each: f"{each.target}-{each.name}")
def test_an_input_that_once_brought_a_bug_to_light_is_taken_or_refused_in_a_sentence(each: Found) -> None:
    runner.feed(each.target, each.given)


@pytest.mark.parametrize("name", WAYS)
def test_the_same_seed_gives_the_same_input_in_whatever_order(name: str) -> None:
    first, again = ([json.dumps(runner.made(name, seed)) for seed in seeds] for seeds in ((1, 2), (2, 1)))

    assert first == again[::-1]
    assert first[0] != first[1]


class Planted(Target):
    """Fails in its own way by some seeds."""

    def __init__(self, _: Path) -> None:
        self._kept: list[bytes] = []

    def make(self, random: Random) -> Any:
        return random.random()

    def feed(self, given: Any) -> None:
        seed = _SEEDS[given]
        if seed == 3:
            raise ZeroDivisionError("a mistake")
        if seed == 5:
            time.sleep(0.3)
        if seed == 7:
            self._kept.append(b"x" * runner.MEMORY)
        if seed == 9:
            ctypes.string_at(0)


_SEEDS = {target.seeded("planted", seed).random(): seed for seed in range(12)}


def test_planted_bugs_are_found_each_with_its_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a child that crashes leaves its folder
    monkeypatch.setitem(WAYS, "planted", Way("tests.fuzz.test_fuzz:Planted", 1))
    monkeypatch.setattr(target, "kind", lambda _: Planted)
    monkeypatch.setattr(runner, "MEMORY", runner._memory() + (200 << 20))
    whole = runner.Report("planted")
    for report in runner.run({"planted": range(12)}, 1, 0.2):
        whole.add(report)

    assert 12 == whole.inputs
    expected = [
        (3, "ZeroDivisionError in test_fuzz.py:feed"),
        (5, "slow"),
        (7, "memory"),
        (9, "exit code -11"),
    ]
    assert expected == [(bug.seed, bug.where.rpartition(":")[0] or bug.where) for bug in whole.bugs]
