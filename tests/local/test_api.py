"""`ddplaunch.api` with real torchrun: the examples of its page, and a program of its own."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import TRAIN, Desk

from ddplaunch import api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
EXAMPLES = re.findall(r"```pycon\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
JOB = 'name: digits\nnproc_per_node: 2\nsource: train.py\ncommand: [train.py, --steps, "5"]\n'
SWEEP = 'name: rates\nsource: train.py\ncommand: [train.py, --steps, "2"]\nsweep: {env.LR: [0.1, 0.01]}\n'
CONFIG = "default: gpu\nprofiles: {gpu: {target: slurm, job: {slurm: {partition: gpu}}}}\n"
WRONG = "name: a\nnodes: 0\ncommand: [train.py]\nnproc_per_nod: 2\n"


@pytest.mark.whole
def test_each_example_of_the_page_answers_what_the_page_shows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "PATH", "OMP_NUM_THREADS", "DDPLAUNCH_TEST"):
        monkeypatch.setenv(name, desk.env[name])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(desk.folder / "config"))
    monkeypatch.delenv("DDPLAUNCH_PROFILE", raising=False)
    monkeypatch.chdir(desk.folder)
    shutil.copy(TRAIN, "train.py")
    Path("job.yaml").write_text(f"apiVersion: ddplaunch/v1\n{JOB}")
    Path("sweep.yaml").write_text(f"apiVersion: ddplaunch/v1\n{SWEEP}")
    Path("config/ddplaunch").mkdir(parents=True)
    Path("config/ddplaunch/config.yaml").write_text(CONFIG)
    Path("wrong.yaml").write_text(f"apiVersion: ddplaunch/v1\n{WRONG}")
    examples = doctest.DocTestParser().get_doctest("\n".join(EXAMPLES), {}, PAGE.name, str(PAGE), 0)
    wrong: list[str] = []

    result = doctest.DocTestRunner(verbose=False).run(examples, out=wrong.append)

    assert "" == "".join(wrong)
    assert len(EXAMPLES) < result.attempted


@pytest.mark.parametrize("name", [name for name in api.__all__ if inspect.isfunction(getattr(api, name))])
def test_the_page_has_an_example_of_each_function(name: str) -> None:
    assert re.search(rf"\bapi\.{name}\(", "".join(EXAMPLES))


@pytest.mark.whole
def test_a_program_follows_explains_and_cancels_its_jobs(desk: Desk) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", Path(__file__).with_name("program.py"), TRAIN],
        cwd=desk.folder,
        env=desk.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUSY * 120,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert [
        "steps 2",
        "failed True",
        "rank-failed [1]",
        "local://program/2 has not ended after 0.1 s: it is running",
        "ranks 2",
        "cancelled",
        "['local://program/2', 'local://program/1']",
    ] == done.stdout.splitlines()
    assert [] == desk.processes()
