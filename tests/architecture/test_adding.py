"""What CONTRIBUTING shows how to add, done to a copy of the tree, block by block."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
TESTS = (
    "tests/agent/checks/test_entropy.py",
    "tests/agent/diagnosis/run/test_prompts.py",
    "tests/agent/diagnosis/test_tables.py",
)
USED = """
import sys
from pathlib import Path
from ddplaunch import api
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.cli.main import main

assert Path(api.__file__).is_relative_to(Path.cwd()), api.__file__
Path("train.py").touch()
Path("job.yaml").write_text(
    "{apiVersion: ddplaunch/v1, name: a, nproc_per_node: 1, command: [train.py],"
    " gate: {skip: [entropy]}, slurm: {wckey: project-x}}"
)
main(["render", "job.yaml", "--to", "slurm", "--output", "rendered"])
script = "".join(file.read_text("utf-8", "replace") for file in Path("rendered").rglob("*") if file.is_file())
print("--wckey=project-x" in script, CATALOGUE["rank-at-prompt"].meaning, sep="; ")
main(["explain", "entropy-low"])
"""


class Block(NamedTuple):
    """A block of code and its file. A `diff` shows lines that are there, and what is added to them."""

    file: str
    kind: str
    text: str


def blocks() -> Iterator[Block]:
    """Yield the blocks of the sections on adding, each with the file that a line before it begins with."""
    adding, file, kind, lines = False, "", "", list[str]()
    for line in PAGE.read_text("utf-8").splitlines():
        named = re.match(r"`([\w./-]+/[\w.-]+)`", line)
        if line == "```":
            if file:
                yield Block(file, kind, "".join(f"{each}\n" for each in lines))
            kind = ""
        elif line.startswith("```"):
            kind, lines = line[3:], []
        elif kind:
            lines.append(line)
        elif line.startswith("## "):
            adding, file = line.startswith("## Add a "), ""
        elif named and adding:
            file = named[1]


def apply(block: Block, tree: Path) -> None:
    path = tree / block.file
    if block.kind != "diff":
        assert not path.exists(), f"{block.file} is there already"
        path.write_text(block.text)
        return
    lines = block.text.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    text = path.read_text("utf-8")
    assert 1 == text.count(before), f"{block.file} has not, or more than once:\n{before}"
    path.write_text(text.replace(before, "".join(line[1:] for line in lines if line[0] != "-")))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, without what was packed from the original."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyz", "golden", "cluster", "corpus")
    for name in ("launcher", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, with the copy's package."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}/launcher:{tree}"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_check_a_verdict_and_a_key_that_are_added_as_the_page_says_work(tree: Path) -> None:
    for block in blocks():
        apply(block, tree)

    tests = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS)
    assert (0, True) == (tests.returncode, "12 passed" in tests.stdout), tests.stdout
    style = run(tree, "-m", "ruff", "check", "--quiet", "launcher", "tests")
    assert "" == style.stdout
    shown = run(tree, "-c", USED)
    assert "True; a rank asks a question and nobody answers" in shown.stdout.splitlines(), shown.stderr
    assert "Run `rngd` on the node, or give the virtual machine a virtio-rng device." in shown.stdout


def test_a_line_that_was_forgotten_is_named(tree: Path) -> None:
    """Of a check its place and its code, of a rule its place in the table, of a code its page."""
    for block in blocks():
        if block.kind == "python" or (block.file.endswith("catalogue.py") and "rank-at-prompt" in block.text):
            apply(block, tree)

    said = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", TESTS[2]).stdout

    assert "entropy.py gives entropy-low: add it to diagnosis/catalogue.py" in said
    assert "test_every_check_is_run_under_the_name_by_which_a_job_file_skips_it" in said
    assert "ddplaunch.agent.diagnosis.run.prompts.rank_at_prompt" in said
    assert "rank-at-prompt.md" in said
