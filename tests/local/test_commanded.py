"""`submit` without a job file, with real torchrun."""

from __future__ import annotations

import shlex
import sys

import pytest
from tests.local.conftest import Desk

TRAIN = """\
import os, sys
import torch.distributed as dist
import models, lib.a
dist.init_process_group("gloo")
open(f"out-{dist.get_rank()}", "w").write(" ".join(sys.argv[1:]))
print("rank", dist.get_rank(), "of", dist.get_world_size(), models.NAME, lib.a.NAME, os.getcwd())
dist.barrier()  # a rank that ends while another still connects to it fails that one
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _code(desk: Desk) -> None:
    """A script with a package beside it, and one in `src`, which is not installed."""
    for name, text in {
        "train.py": TRAIN,
        "models/__init__.py": "NAME = 'models'",
        "src/lib/__init__.py": "",
        "src/lib/a.py": "NAME = 'lib'",
    }.items():
        (desk.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.folder / name).write_text(text)
    desk.env["PYTHONPATH"] += f":{desk.folder / 'src'}"


WORDS = ["--to", "local", "--set", f"python={sys.executable}", "--wait"]


@pytest.mark.whole
def test_a_script_runs_without_a_job_file_and_the_saved_file_does_the_same(desk: Desk) -> None:
    """In this folder, with its arguments, on so many ranks; the saved file does the same."""
    words = [
        "--nodes",
        "2",
        "--nproc-per-node",
        "2",
        "--save",
        "job.yaml",
        "--",
        "train.py",
        "--lr",
        "0.1",
        "a b",
    ]
    ended = desk.call("submit", *WORDS, *words)

    assert 0 == ended.returncode, ended.stderr
    assert "local://train/1\n" == ended.stdout
    assert all(f"rank {rank} of 4 models lib {desk.folder}" in ended.stderr for rank in range(4))
    assert ["--lr 0.1 a b"] * 4 == [(desk.folder / f"out-{rank}").read_text() for rank in range(4)]
    again = desk.call("submit", "job.yaml", "--to", "local", "--wait")
    assert (0, "local://train/2\n") == (again.returncode, again.stdout), again.stderr
    desk.gone()


def test_a_failing_modules_exit_code_is_the_jobs_result(desk: Desk) -> None:
    (desk.folder / "models" / "fit.py").write_text("raise SystemExit(3)")

    ended = desk.call("submit", *WORDS, *shlex.split("-- -m models.fit"))

    assert (100, "local://fit/1\n") == (ended.returncode, ended.stdout), ended.stderr
    desk.gone()


def test_what_init_proposes_runs_without_the_folder_on_pythonpath(desk: Desk) -> None:
    desk.env["PYTHONPATH"] = desk.env["PYTHONPATH"].removesuffix(f":{desk.folder / 'src'}")
    (desk.folder / "one").mkdir()
    for name in ("train.py", "models", "src"):
        (desk.folder / name).rename(desk.folder / "one" / name)
    assert 0 == desk.call("init", "one/job.yaml").returncode

    words = ["--set", f"python={sys.executable}", "--to", "local", "--wait"]
    ended = desk.call("submit", "one/job.yaml", *words)

    assert (0, "local://one/1\n") == (ended.returncode, ended.stdout), ended.stderr
    desk.gone()
