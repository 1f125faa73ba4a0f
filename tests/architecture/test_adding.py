"""What CONTRIBUTING says about adding something, done to a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).parents[2] / "launcher"

CHECK = """
from ddplaunch.agent.checks.context import Context, failed
from ddplaunch.agent.contract import CheckResult


def check(context: Context) -> CheckResult:
    return failed("moon", "clock-skew", "the moon is up", "a new moon", "wait a fortnight")
"""
RUN = """
import sys, tempfile
from pathlib import Path
from tests.agent.checks.make import make_context
from ddplaunch.agent.checks.run import run
from ddplaunch.spec.load import parse

with tempfile.TemporaryDirectory() as folder:
    context = make_context(Path(folder))
    print([result.observed for result in run(context) if result.check == "moon"])
    context.master and context.master.close()
job = b"{apiVersion: ddplaunch/v1, name: a, nproc_per_node: 1, command: [b.py], gate: {skip: [moon]}}"
print(parse(job, "job.yaml").gate.skip)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, without what was packed from the original."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyz")
    return Path(shutil.copytree(LAUNCHER, tmp_path / "launcher", ignore=ignored))


def test_a_check_is_one_module_and_its_name(copy: Path) -> None:
    """The gate runs it in its place, and a job file can skip it."""
    agent = copy / "ddplaunch" / "agent"
    (agent / "checks" / "moon.py").write_text(CHECK)
    contract = agent / "contract" / "__init__.py"
    text = contract.read_text()
    contract.write_text(text.replace('    "clock",\n)', '    "clock",\n    "moon",\n)'))
    assert contract.read_text() != text

    found = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": f"{copy}:."},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ["['the moon is up']", "('moon',)"] == found.stdout.splitlines(), found.stderr
