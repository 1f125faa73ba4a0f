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

TEXT = template.text("digits", ["train.py"])
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
    ("text", "name"),
    [
        ("digits", "digits"),
        ("My Digits (2)", "my-digits-2"),
        ("3d", "d"),
        ("42", ""),
        ("größe", "grosse"),
        ("日本", ""),
        ("x" * 99, "x" * 50),
        ("a" * 49 + "_b", "a" * 49),
    ],
)
def test_a_job_is_named_after_something(text: str, name: str) -> None:
    """As far as a job can be called so."""
    assert name == template.name_of(text)
    if name:
        assert name == load.parse(template.text(name, ["train.py"]).encode(), "job.yaml").name


@pytest.mark.parametrize("name", ["on", "no", "null", "y"])
def test_a_name_is_a_text(name: str) -> None:
    assert name == load.parse(template.text(name, ["train.py"]).encode(), "job.yaml").name


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    """Not even an empty one, nor one that a link points to."""
    path = tmp_path / "job.yaml"
    path.touch()
    link = tmp_path / "link.yaml"
    link.symlink_to(tmp_path / "nowhere.yaml")
    for taken in (path, link, tmp_path):
        with pytest.raises(UsageError, match="exists already"):
            template.create(taken, "")

    assert "" == path.read_text()
    assert not (tmp_path / "nowhere.yaml").exists()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        template.create(tmp_path / "nowhere" / "job.yaml", "")


WORDS = [
    "my train.py",
    "train: {a}.py",
    "on.py",
    "on",
    "ö.py",
    "{name}.py",
    "3",
    "1e3",
    "0x1f",
    "-1",
    "- a",
    "#x",
    "~",
]
WORDS += [
    "--lr=0.1",
    "-m",
    "--epochs",
    "a, b",
    "[x]",
    'say "no"',
    "it's",
    r"a\b",
    "x\ty",
    "😀.py",
    "",
    "null",
    "&a",
    "*a",
]


def test_any_word_can_be_written() -> None:
    """In a list of one line, and in one of many."""
    found = load.parse(template.text("digits", WORDS, WORDS[:3], ["src", "."]).encode(), "job.yaml")
    assert (tuple(WORDS), tuple(WORDS[:3])) == (found.command, found.source)
    assert {"PYTHONPATH": "src:."} == found.env

    many = [f"folder_{number}/module.py" for number in range(30)]
    found = load.parse(
        template.text("digits", ["train.py"], many, kept=["a: b (3 GiB)"]).encode(), "job.yaml"
    )
    assert tuple(many) == found.source
