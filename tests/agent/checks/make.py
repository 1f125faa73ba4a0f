"""Contexts for checks, as a gate makes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import GatePlan, JobPlan, ResourcePlan


def make_context(folder: Path, node: int = 0, **changes: Any) -> Context:
    """Of a node of a job of two; `environment` replaces this process's own."""
    environment = changes.pop("environment", dict(os.environ))
    plain: dict[str, Any] = {
        "job": "trial",
        "nodes": 2,
        "nproc_per_node": 1,
        "launch": ["{python}"],
        "command": ["train.py"],
        "workdir": str(folder),
        "gate": GatePlan(**changes.pop("gate", {})),
        "resources": ResourcePlan(**changes.pop("resources", {})),
    }
    plan = JobPlan(**{**plain, **changes})
    return Context(plan, str(folder), node, 0, b"key", environment)


def lay_torch(folder: Path, text: str) -> dict[str, str]:
    """A torch whose `__init__` must never run, as files alone; returns the environment that finds it."""
    (folder / "torch" / "distributed").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "torch" / "version.py").write_text(text)
    (folder / "torch" / "distributed" / "run.py").touch()
    return {**os.environ, "PYTHONPATH": str(folder)}
