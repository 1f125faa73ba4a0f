"""Each import contract of pyproject.toml holds, and fails once it is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

LAYERS = "Layers point one way"
AGENT_LAYERS = "The agent's layers point one way"
AGENT = "The agent imports nothing of the launcher, and torch only its children do"
PLAN = "Spec, plan, render and inject know the agent by its plan and its job file alone"
PURE = "Spec, plan, render and inject touch no process, socket, clock, chance or environment"


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter on `tree`, with the rules in its pyproject.toml."""
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "launcher"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_tree_keeps_every_contract(tree: Path) -> None:
    """The package as it is breaks no import contract."""
    result = lint_imports(tree)

    assert (0, True) == (result.returncode, "Contracts: 5 kept, 0 broken." in result.stdout), result.stdout


# From the lowest layer up.
AGENT_PACKAGES = [
    *(
        "text",
        "plan",
        "contract",
        "job_file",
        "system",
        "interfaces",
        "transport",
        "platforms",
        "evidence",
        "diagnosis",
    ),
    *("checks", "hub", "supervisor", "gate", "local", "join", "slurm"),
]

# Module, line, contract, and what that contract names.
PLANTED = [
    ("spec", "import ddplaunch.plan", LAYERS, "ddplaunch.plan"),
    ("plan", "import ddplaunch.render", LAYERS, "ddplaunch.render"),
    ("render", "import ddplaunch.backends", LAYERS, "ddplaunch.backends"),
    ("backends", "import ddplaunch.report", LAYERS, "ddplaunch.report"),
    ("report", "import ddplaunch.api", LAYERS, "ddplaunch.api"),
    ("report", "import ddplaunch.cli", LAYERS, "ddplaunch.cli"),
    ("agent.hub", "import ddplaunch.errors", LAYERS, "ddplaunch.errors"),
    ("agent.hub", "import ddplaunch.spec", AGENT, "ddplaunch.spec"),
    ("agent.hub", "import pydantic", AGENT, "pydantic"),
    ("agent.hub", "def f():\n    import torch", AGENT, "torch"),
    ("render", "import ddplaunch.agent.hub.planted", PLAN, "ddplaunch.agent.hub.planted"),
    ("spec", "import os", PURE, "os"),
    ("plan", "import time", PURE, "time"),
    ("render", "import subprocess", PURE, "subprocess"),
    ("render", "from socket import create_server", PURE, "socket"),
    ("inject", "import ddplaunch.backends", LAYERS, "ddplaunch.backends"),
    ("inject", "import os", PURE, "os"),
    *(
        (f"agent.{lower}", f"import ddplaunch.agent.{upper}", AGENT_LAYERS, f"ddplaunch.agent.{upper}")
        for lower, upper in pairwise(AGENT_PACKAGES)
    ),
]


def test_each_planted_import_breaks_its_contract(tree: Path) -> None:
    """An import that a contract forbids is found, and named, by that contract."""
    package = tree / "launcher" / "ddplaunch"
    (package / "agent" / "hub" / "planted.py").write_text("")
    for number, (module, line, *_) in enumerate(PLANTED):
        (package / module.replace(".", "/") / f"planted{number}.py").write_text(line + "\n")

    result = lint_imports(tree)

    assert 1 == result.returncode
    assert [] == [
        planted
        for number, planted in enumerate(PLANTED)
        if f"ddplaunch.{planted[0]}.planted{number} -> {planted[3]} " not in broken(result.stdout, planted[2])
    ]


def broken(said: str, contract: str) -> str:
    """What import-linter says of it, below its name and a line."""
    return said.partition(f"\n{contract}\n---")[2].partition("\n---")[0]


def test_a_package_outside_the_layers_is_found(tree: Path) -> None:
    """A new top-level package must be given its place among the layers."""
    (tree / "launcher" / "ddplaunch" / "planted.py").write_text("")

    result = lint_imports(tree)

    assert 1 == result.returncode
    assert f"{LAYERS} BROKEN" in result.stdout
    assert "planted" in result.stdout
