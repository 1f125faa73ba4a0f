"""What `ddplaunch init` writes, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call

from ddplaunch import api


def test_init_writes_a_file_that_is_good(call: Call, tmp_path: Path) -> None:
    """A newcomer's first file validates, and is never written over."""
    assert (0, "") == call("init", "first.yaml")[:2]
    assert (0, "", "first.yaml: good\n") == call("validate", "first.yaml")
    written = (tmp_path / "first.yaml").read_text()

    again = call("init", "first.yaml")

    assert (2, written) == (again.code, (tmp_path / "first.yaml").read_text())
    assert again.err.startswith("error: first.yaml exists already\n\nhint: ")


def test_init_says_whose_job_it_is(call: Call, tmp_path: Path) -> None:
    """And where no script is clearly meant, what to do about that."""
    alone = call("init", "a.yaml")
    (tmp_path / "fit.py").touch()
    named = call("init", "b.yaml")

    assert f"\nnote: {tmp_path} has no train.py, and no script that is clearly meant" in alone.err
    assert "wrote b.yaml, which runs fit.py; `ddplaunch validate b.yaml`" == named.err.partition(", then")[0]


def test_init_writes_an_example_to_begin_with(call: Call, tmp_path: Path) -> None:
    """The job file carries the script that was written."""
    answer = call("init", "--example")

    job = api.load("job.yaml")
    assert (0, "") == (answer.code, answer.out)
    assert (("train.py",), ("train.py",)) == (job.command, job.source)
    assert "wrote job.yaml and train.py\n" == answer.err.splitlines(keepends=True)[0]
    compile((tmp_path / "train.py").read_text(), "train.py", "exec")


@pytest.mark.parametrize("there", ["job.yaml", "train.py"])
def test_an_example_replaces_nothing(call: Call, tmp_path: Path, there: str) -> None:
    """Both files are written, or neither."""
    (tmp_path / there).write_text("mine")
    answer = call("init", "--example")

    assert (2, ["mine"]) == (answer.code, [path.read_text() for path in tmp_path.glob("*.*")])
    assert answer.err.startswith(f"error: {there} exists already\n\nhint: ")
