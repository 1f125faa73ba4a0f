"""The job file that `ddplaunch init` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from ddplaunch.agent.contract import CHECKS
from ddplaunch.errors import UsageError
from ddplaunch.spec import load, template
from ddplaunch.spec.models import JobSpec

TEXT = template.text("digits")
SWITCHED_ON = re.sub(r"^#(?=\w| {2})", "", TEXT, flags=re.MULTILINE)


def test_it_is_a_job() -> None:
    """As it is written, and without any of its comments."""
    bare = "\n".join(line.partition("#")[0] for line in TEXT.splitlines())

    assert "digits" == load.parse(TEXT.encode(), "job.yaml").name
    assert load.parse(TEXT.encode(), "job.yaml") == load.parse(bare.encode(), "job.yaml")


def test_every_setting_can_be_switched_on() -> None:
    """Taking away each `#` before a setting gives a job as well."""
    spec = load.parse(SWITCHED_ON.encode(), "job.yaml")

    assert "1.31" == spec.kubernetes.version


def test_it_shows_every_key_and_its_default() -> None:
    """A key that the model has and the template lacks would never be found; a wrong default misleads."""
    shown = yaml.safe_load(SWITCHED_ON)
    missing, other = _compare(JobSpec, shown, load.parse(SWITCHED_ON.encode(), "job.yaml"), ())

    examples = [
        "source",
        "env",
        "secrets",
        "volumes",
        "resume.args",
        "notify",
        "slurm.container.runtime",
        "slurm.container.mounts",
    ]
    assert [] == missing
    assert examples == other


def _compare(
    model: type[BaseModel], shown: dict[str, Any], spec: Any, path: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    """Keys that are not shown, and keys that have a default and are shown with an example instead."""
    missing, other = [], []
    for field, info in model.model_fields.items():
        key = info.alias or field
        name = ".".join((*path, key))
        value = getattr(spec, field)
        if name in ("min_nodes", "newcomers"):
            continue  # the line of `nodes` shows the range that it is part of
        if key not in shown:
            missing.append(name)
        elif isinstance(info.default, BaseModel):
            more = _compare(type(info.default), shown[key], value, (*path, key))
            missing += more[0]
            other += more[1]
        elif info.is_required() or (not path and key in ("nodes", "nproc_per_node")):
            continue
        elif info.default not in (None, value):
            other.append(name)
    return missing, other


def test_it_names_every_check() -> None:
    """What `skip` may hold is said where it stands."""
    assert ", ".join(CHECKS) in TEXT


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("job.yaml", "job"),
        ("My Digits.yaml", "my-digits"),
        ("3d.yaml", "d"),
        ("42.yaml", "job"),
        ("x" * 99, "x" * 50),
    ],
)
def test_the_job_is_named_after_its_file(tmp_path: Path, file: str, name: str) -> None:
    """As far as a job can be called so."""
    path = tmp_path / file
    template.write_new(path)

    assert name == load.load(path).name


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    """Not even an empty one, nor one that a link points to."""
    path = tmp_path / "job.yaml"
    path.touch()
    link = tmp_path / "link.yaml"
    link.symlink_to(tmp_path / "nowhere.yaml")
    for taken in (path, link, tmp_path):
        with pytest.raises(UsageError, match="exists already"):
            template.write_new(taken)

    assert "" == path.read_text()
    assert not (tmp_path / "nowhere.yaml").exists()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        template.write_new(tmp_path / "nowhere" / "job.yaml")


def _folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("names", "script", "source"),
    [
        (["train.py", "main.py", "a.py"], "train.py", ["train.py", "a.py", "main.py"]),
        (["main.py", "a.py"], "main.py", ["main.py", "a.py"]),
        (["train_gpt.py", "a.py"], "train_gpt.py", ["train_gpt.py", "a.py"]),
        (["a.py", "notes.txt"], "a.py", ["a.py"]),
        (["train.py", "nets/__init__.py", "data/x.bin"], "train.py", ["train.py", "nets"]),
        (["train.py", *(f"m{number}.py" for number in range(30))], "train.py", ["train.py"]),
        (["train_a.py", "train_b.py"], "", []),
        (["a.py", "b.py"], "", []),
        (["-a.py"], "", []),
        ([], "", []),
    ],
)
def test_the_code_beside_a_job_file_is_found(
    tmp_path: Path, names: list[str], script: str, source: list[str]
) -> None:
    """Where it is not clear which script is meant, none is."""
    assert (script, source) == template.code_in(_folder(tmp_path, *names))


@pytest.mark.parametrize("script", ["my train.py", "train: {a}.py", "on.py", "ö.py", "{name}.py"])
def test_a_job_file_names_what_is_there(tmp_path: Path, script: str) -> None:
    """Whatever it is called."""
    assert script == template.write_new(_folder(tmp_path, script) / "job.yaml")

    found = load.load(tmp_path / "job.yaml")
    assert ((script,), (script,)) == (found.command, found.source)
