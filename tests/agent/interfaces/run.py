"""Runs the laboratory in namespaces of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Found:
    """`disagreements`: lines of JSON, each with all that it takes to ask again."""

    layouts: int
    counts: dict[str, int]  # questions by library
    rules: dict[str, int]  # how often each decided
    disagreements: list[str]


def ask_all(
    libraries: list[Path], layouts: int, settings: int, of_torch: int = 0, first: int = 0, judge_as: str = ""
) -> Found:
    """These versions of NCCL with `settings` on each host, Gloo and TensorPipe with `of_torch`.

    The first host has the number `first`; `judge_as` predicts for that version of NCCL, whichever is asked.
    """
    words = ["unshare", "--mount", "--uts", "--net", sys.executable, "-m", "tests.agent.interfaces.lab"]
    words += [f"--layouts={layouts}", f"--settings={settings}", f"--torch={of_torch}", f"--first={first}"]
    words += [f"--judge-as={judge_as}", *map(str, libraries)]
    search = os.pathsep.join([str(ROOT), str(ROOT / "launcher")])
    env = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env, check=False)
    assert done.returncode in (0, 1), f"the laboratory ended with {done.returncode}"
    *disagreements, last = done.stdout.splitlines()
    found = json.loads(last)
    return Found(found["layouts"], found["counts"], found["rules"], disagreements)
