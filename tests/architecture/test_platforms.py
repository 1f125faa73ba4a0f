"""One seam for schedulers in the agent: `agent.platforms` knows them, and no other room does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "launcher" / "ddplaunch" / "agent"
ROOMS = ("platforms", "slurm", "job_file")
"""The seam, the programs of a Slurm node, and the job file, some of whose keys are for one scheduler."""
EXCEPTIONS = {
    "cli.py": "calls the programs of a Slurm node",
    "plan/__init__.py": "names a file that job scripts write",
    "join/key.py": "Slurm's MUNGE is one way to a common key",
    "join/__init__.py": "Slurm's MUNGE is one way to a common key",
    "checks/command_line.py": "srun is one of MPI's launchers",
    "supervisor/launch_options.py": "srun is one of MPI's launchers",
    "supervisor/mpi_keeper.py": "srun is one of MPI's launchers",
}
SCHEDULERS = re.compile(
    r"slurm|srun|scontrol|sbatch|squeue|sacct|kubernetes|kubectl|kubelet|(?<![a-z])pods?(?![a-z])|\bsvc\b",
    re.IGNORECASE,
)


def mentions(source: str) -> Iterator[str]:
    """Yield the names and texts of `source` that hold a word of a scheduler; docstrings explain, and may."""
    tree = ast.parse(source)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    explaining = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if id(node) in explaining:
            continue
        for field in ("name", "id", "attr", "arg", "module", "value"):
            value = getattr(node, field, None)
            if isinstance(value, str) and SCHEDULERS.search(value):
                yield value


def test_only_platforms_know_a_scheduler() -> None:
    """Whoever adds a scheduler writes one record, and looks for it in no other room."""
    found = {path.relative_to(AGENT).as_posix(): path.read_text("utf-8") for path in AGENT.rglob("*.py")}
    elsewhere = {
        name: words
        for name, text in found.items()
        if not name.startswith(tuple(f"{room}/" for room in ROOMS)) and (words := sorted(set(mentions(text))))
    }

    assert {} == {name: words for name, words in elsewhere.items() if name not in EXCEPTIONS}
    assert set() == EXCEPTIONS.keys() - elsewhere.keys(), "no exceptions any more"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("hint = 'look into `kubectl get pods`'", ["look into `kubectl get pods`"]),
        ("if environment.get('SLURM_JOB_ID'): pass", ["SLURM_JOB_ID"]),
        ("from ddplaunch.agent.platforms import pods", ["pods"]),
        ("are_pods(names)", ["are_pods"]),
        ('"""Waits for a pod."""\nslot = tripods = 1', []),
    ],
)
def test_the_guard_sees_what_it_is_for(source: str, found: list[str]) -> None:
    """Names and texts count, docstrings and other words do not."""
    assert found == list(mentions(source))
