"""The agent as nodes run it: one file, any Python >= 3.9, nothing around it."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_agent_lists_its_verbs_without_anything_around_it(agent: list[str], tmp_path: Path) -> None:
    """Without site-packages, environment and current folder the agent still finds all of itself."""
    result = subprocess.run([*agent, "--help"], cwd=tmp_path, env={}, capture_output=True, text=True)

    assert (0, "") == (result.returncode, result.stderr)
    assert {"gate", "hub", "run"} <= set(result.stdout.replace(",", " ").replace("{", " ").split())


def test_an_unknown_verb_is_refused(agent: list[str], tmp_path: Path) -> None:
    """A word the agent does not know is an error that lists the words it knows, and nothing is run."""
    result = subprocess.run([*agent, "gat"], cwd=tmp_path, env={}, capture_output=True, text=True)

    assert 0 != result.returncode
    assert "" == result.stdout
    assert "gate" in result.stderr
    assert "Traceback" not in result.stderr
