"""The jobs: what they are to come to by themselves, and their files."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.scenario import JUMP, Scenario

PROGRAMS = Path(__file__).parent / "programs"
NAME = "chaos"
STEPS = 40
"""Of 0.1 s."""
SLOW_STEPS = 8
"""Of 0.7 s."""


@dataclass(frozen=True)
class Kind:
    """`ends`: how a job of this kind ends when nothing hits it. `accused`: whether its rank is at fault."""

    ends: str
    accused: bool = True


KINDS = {
    "healthy": Kind("succeeded", accused=False),
    "slow": Kind("succeeded", accused=False),
    "hang": Kind("hang"),
    "raise": Kind("failed"),
    "exit": Kind("failed"),
    "kill": Kind("failed"),
    "gate": Kind("gate", accused=False),
}


def last_line(scenario: Scenario) -> str:
    """The line that a rank prints once it has done all its steps."""
    return f"step {_steps(scenario) - 1}"


def write(scenario: Scenario, folder: Path, **keys: Any) -> Path:
    """The job file and its source, in `folder`; `keys` are added to the job file."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROGRAMS / "train.py", folder)
    if not scenario.torch:
        shutil.copytree(PROGRAMS / "torch", folder / "torch", ignore=shutil.ignore_patterns("__pycache__"))
    fault = scenario.job if scenario.job not in ("healthy", "gate") else ""
    words = ["--steps", str(_steps(scenario)), "--fault", fault, "--rank", str(scenario.culprit)]
    env = {"OMP_NUM_THREADS": "1"}
    if any(injury.action == JUMP for injury in scenario.injuries):
        env["LD_PRELOAD"] = ""  # the clocks of the user's own processes stay right
    values = {
        "apiVersion": "ddplaunch/v1",
        "name": NAME,
        "nodes": scenario.nodes,
        "nproc_per_node": scenario.nproc,
        "source": ["train.py", *([] if scenario.torch else ["torch"])],
        "command": ["/absent.py" if scenario.job == "gate" else "train.py", *words],
        "env": env,
        "gate": {"timeout": "20s"},
        "watchdog": {"notice_after": "3s", "kill_after": "10s"},
        **keys,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(values))
    return path


def _steps(scenario: Scenario) -> int:
    return SLOW_STEPS if scenario.job == "slow" else STEPS
