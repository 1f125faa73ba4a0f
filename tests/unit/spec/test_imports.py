"""What reading a job file imports, and which commands do without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY

LAUNCHER = Path(__file__).resolve().parents[3] / "launcher"


def _imported(code: str, folder: Path, *names: str) -> str:
    """Which of *names* a fresh interpreter has imported once *code* has run, whatever it prints or raises."""
    shown = f"print('imported', *(name for name in {names} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n{shown}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LAUNCHER), "HOME": str(folder)},
        capture_output=True,
        check=True,
        text=True,
        cwd=folder,
        timeout=BUSY * 30,
    )
    return done.stdout.splitlines()[-1]


def test_reading_a_good_job_imports_nothing_that_only_errors_need(tmp_path: Path) -> None:
    """`render` has no time for them."""
    rare = ("jsonschema", "difflib", "ddplaunch.spec.messages", "ddplaunch.spec.schema")

    assert "imported ddplaunch.spec.load" == _imported(
        "import ddplaunch.spec.load as x; x.parse(b'{apiVersion: ddplaunch/v1, name: a, command: [x]}', '')",
        tmp_path,
        "ddplaunch.spec.load",
        *rare,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["status", "--help"],
        ["completion", "bash"],
        ["status", "local://none/1"],
        ["status", "slurm://7"],
        ["list", "--help"],
        ["list"],
        ["logs", "local://none/1"],
        ["cancel", "local://none/1"],
        ["explain"],
        ["explain", "port-ephemeral"],
        ["diagnose", "nowhere.json"],
        ["run", "--help"],
        ["run", "torchrun", "--nnodes", "two", "train.py"],
    ],
    ids=" ".join,
)
def test_what_reads_no_job_file_does_without_pydantic(words: list[str], tmp_path: Path) -> None:
    """Importing it takes longer than all of the overview."""
    code = f"from ddplaunch.cli.main import main; main({words})"

    assert "imported ddplaunch.cli.main" == _imported(code, tmp_path, "pydantic", "ddplaunch.cli.main")


def test_reading_a_job_does_import_pydantic(tmp_path: Path) -> None:
    """Otherwise the test above would find nothing."""
    assert "imported pydantic" == _imported("import ddplaunch.spec.load", tmp_path, "pydantic")
