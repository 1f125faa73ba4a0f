"""Start-up is a feature: what a command, or an import, loads it pays for, and does without the rest."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.busy import BUSY

LAUNCHER = Path(__file__).resolve().parents[2] / "launcher"
SPEC = "api.JobSpec(apiVersion='ddplaunch/v1', name='a', command=('a',))"
JOB = "{apiVersion: ddplaunch/v1, name: digits, image: x, command: [train.py]}"
OVERVIEW = (
    *("argparse", "jinja2", "pydantic", "yaml", "rich"),
    *("ddplaunch.agent.contract", "ddplaunch.backends", "ddplaunch.spec"),
)
RUNNING = ("rich", "jinja2", "ddplaunch.backends", "ddplaunch.report", "asyncio", "subprocess")
CLIENT = ("kubernetes", "urllib3", "websocket")
"""Kubernetes' client, which takes most of a second."""
API = (
    *("argparse", "ddplaunch.agent.contract", "ddplaunch.backends", "ddplaunch.cli", "ddplaunch.plan"),
    *("ddplaunch.report", "ddplaunch.spec", "jinja2", "kubernetes", "pydantic", "sh"),
)


def loaded(code: str, folder: Path, names: Iterable[str]) -> list[str]:
    """Which of `names` a fresh interpreter has loaded once `code` has run, whatever it prints or raises."""
    shown = f"import sys; print('', *(name for name in {tuple(names)} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"try:\n    {code}\nexcept BaseException:\n    pass\n{shown}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(LAUNCHER), "HOME": str(folder)},
        capture_output=True,
        check=True,
        text=True,
        cwd=folder,
        timeout=BUSY * 60,
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ("--help", (*OVERVIEW, *CLIENT)),
        ("--version", OVERVIEW),
        ("rnder", OVERVIEW),
        ("render job.yaml", RUNNING),
        ("render job.yaml --to kubernetes", CLIENT),
        ("submit job.yaml --to kubernetes --dry-run", CLIENT),
        ("submit --help", CLIENT),
        ("completion bash", ("pydantic",)),
        ("completion --words status kubernetes://", ("pydantic", "sh", *CLIENT)),
        ("completion --words status slurm://", ("pydantic", "sh")),
        ("status local://none/1", ("pydantic",)),
        ("status slurm://7", ("pydantic",)),
        ("list", ("pydantic",)),
        ("explain port-ephemeral", ("pydantic",)),
        ("diagnose nowhere.json", ("pydantic",)),
        ("run torchrun --nnodes two train.py", ("pydantic",)),
    ],
)
def test_a_command_loads_only_what_it_needs(words: str, without: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    code = f"from ddplaunch.cli.main import main; main({shlex.split(words)})"

    assert ["ddplaunch.cli.main"] == loaded(code, tmp_path, ("ddplaunch.cli.main", *without))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from ddplaunch import api", []),
        (
            "from ddplaunch import api; api.status('local://none')",
            ["ddplaunch.agent.contract", "ddplaunch.backends"],
        ),
        (
            f"from ddplaunch import api; api.render({SPEC}, 'slurm')",
            ["ddplaunch.plan", "ddplaunch.spec", "pydantic"],
        ),
    ],
)
def test_a_program_pays_for_what_it_uses(code: str, found: list[str], tmp_path: Path) -> None:
    """Rendering loads no backend and no evidence, a status no pydantic, and neither the command line."""
    assert found == loaded(code, tmp_path, API)


def test_a_good_job_is_read_without_what_only_errors_need(tmp_path: Path) -> None:
    rare = ("jsonschema", "difflib", "ddplaunch.spec.messages", "ddplaunch.spec.schema")
    code = f"import ddplaunch.spec.load as x; x.parse(b'{JOB}', '')"

    assert ["pydantic"] == loaded(code, tmp_path, ("pydantic", *rare))
