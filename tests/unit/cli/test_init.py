"""What `ddplaunch init` writes, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call

from ddplaunch import api


def test_init_writes_a_file_that_is_good(call: Call, tmp_path: Path) -> None:
    """A newcomer's first file validates, and is never written over."""
    (tmp_path / "fit.py").touch()
    named = call("init", "first.yaml")
    assert (0, "") == named[:2]
    assert (
        "wrote first.yaml, which runs fit.py; next: `ddplaunch validate first.yaml`"
        == named.err.partition(", then")[0]
    )
    assert (0, "", "first.yaml: good for this machine\n") == call("validate", "first.yaml")
    written = (tmp_path / "first.yaml").read_text()

    again = call("init", "first.yaml")

    assert (2, written) == (again.code, (tmp_path / "first.yaml").read_text())
    assert again.err.startswith("error: first.yaml exists already\n\nhint: ")


def test_without_a_script_the_command_waits_to_be_filled_in(call: Call, tmp_path: Path) -> None:
    """No script is named that is not there, and `validate` says what is missing."""
    alone = call("init", "a.yaml")
    for name in ("fit.py", "other.py"):
        (tmp_path / name).touch()
    several = call("init", "b.yaml")

    assert f"wrote a.yaml without a `command`: {tmp_path} has no train.py" in alone.err
    assert "it is not clear which script you mean: fit.py, other.py\n" in several.err
    assert "run `ddplaunch init b.yaml --script fit.py`" in several.err
    assert "1 problem in b.yaml" in (missing := call("validate", "b.yaml")).err
    assert (2, True) == (missing.code, "command: the key is missing" in missing.err)


def test_a_job_is_called_after_its_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "My Digits").mkdir()
    (tmp_path / "42").mkdir()
    for path in ("My Digits/job.yaml", "42/eval.yaml", "42/job.yaml"):
        call("init", path)
    names = [
        (tmp_path / path).read_text().splitlines()[2]
        for path in ("My Digits/job.yaml", "42/eval.yaml", "42/job.yaml")
    ]

    assert ["name: my-digits", "name: eval", "name: job"] == names


def test_init_proposes_what_the_script_needs(call: Call, tmp_path: Path) -> None:
    """With the folders in which Python has to look; the rest is named with its size."""
    for path, text in {
        "tools/train.py": "from models import net\nimport pkg\nopen('data/big.bin')",
        "models/__init__.py": "",
        "models/net.py": "",
        "src/pkg/__init__.py": "",
        "data/big.bin": "x" * 200_000,
        "other.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    answer = call("init", "--script", "tools/train.py")

    job = api.load("job.yaml")
    assert ("tools/train.py",) == job.command
    assert ("tools/train.py", "models", "src/pkg") == job.source
    assert {"PYTHONPATH": ".:src"} == job.env
    assert "note: not in `source`: data/big.bin (195.3 KiB)\n" in answer.err
    assert "#   data/big.bin (195.3 KiB)\n" in (tmp_path / "job.yaml").read_text()


@pytest.mark.parametrize("words", [["--script", "no.py"], ["sub/job.yaml", "--script", "train.py"]])
def test_a_script_that_is_not_there_is_refused(call: Call, tmp_path: Path, words: list[str]) -> None:
    """Nor can one run that is outside of the job file's folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.py").touch()

    assert 2 == call("init", *words).code
    assert not list(tmp_path.rglob("job.yaml"))


def test_init_writes_an_example_to_begin_with(call: Call, tmp_path: Path) -> None:
    """The job file carries the script that was written."""
    answer = call("init", "--example")

    job = api.load("job.yaml")
    assert (0, "") == (answer.code, answer.out)
    assert (("train.py",), ("train.py",)) == (job.command, job.source)
    assert "wrote job.yaml and train.py\n" == answer.err.splitlines(keepends=True)[0]
    compile((tmp_path / "train.py").read_text(), "train.py", "exec")


def test_a_script_is_no_job_file(call: Call, tmp_path: Path) -> None:
    answer = call("init", "ddp.py")

    assert (2, []) == (answer.code, [*tmp_path.glob("*.*")])
    assert "`ddplaunch init --script ddp.py` writes one that runs it" in answer.err


@pytest.mark.parametrize("there", ["job.yaml", "train.py"])
def test_an_example_replaces_nothing(call: Call, tmp_path: Path, there: str) -> None:
    """Both files are written, or neither."""
    (tmp_path / there).write_text("mine")
    answer = call("init", "--example")

    assert (2, ["mine"]) == (answer.code, [path.read_text() for path in tmp_path.glob("*.*")])
    assert answer.err.startswith(f"error: {there} exists already\n\nhint: ")


def test_a_file_with_any_name_is_told_in_a_command_that_works(call: Call, tmp_path: Path) -> None:
    """In any shell: square brackets are a pattern, in zsh an error."""
    example = call("init", "--example", "my job[1].yaml")

    assert (
        "  ddplaunch submit 'my job[1].yaml' --wait --set name=hangs --set 'command[1]=--hang' "
        in example.err
    )
