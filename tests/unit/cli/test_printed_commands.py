"""Commands that users copy from the help, the README and the pages work in bash, zsh and fish."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddplaunch.cli.main import VERBS, command

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
PATTERN = re.compile(r"[\[*?{}~]|(^|\s)=")
"""Zsh and fish look for files by these, and zsh refuses a command for which there is none."""


def commands() -> Iterator[tuple[str, str]]:
    """Where each command stands, and its text."""
    for verb in VERBS:
        for line in command(verb).help.splitlines():
            if line.startswith("  ddplaunch "):
                yield verb, line.strip()
    for page in PAGES:
        for line in page.read_text().splitlines():
            if re.match(r"\$ (ddplaunch|srun|sbatch|kubectl|helm) ", line):
                yield page.name, line[2:]


def bare(command: str) -> str:
    """Without what is quoted."""
    return re.sub(r"'[^']*'|\"(\\.|[^\"])*\"", "", command)


def test_no_command_has_a_pattern_that_is_not_quoted() -> None:
    """`--set command[1]=--hang` is one."""
    found = list(commands())

    assert len(found) > 30
    assert [] == [each for each in found if PATTERN.search(bare(each[1]))]
    assert PATTERN.search(bare("ddplaunch submit job.yaml --set command[1]=--hang"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_can_be_read_by_every_shell(shell: str) -> None:
    """None has a syntax that only one of them knows."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    whole = [each for _, each in commands() if not each.endswith("\\") and "…" not in each]
    done = subprocess.run(
        [program, "--no-execute" if shell == "fish" else "-n"],
        input="\n".join(whole),
        capture_output=True,
        text=True,
        timeout=20,
    )

    assert (0, "") == (done.returncode, done.stderr)
