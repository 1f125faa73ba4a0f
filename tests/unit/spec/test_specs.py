"""The job files of tests/specs, each with what is expected of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ddplaunch.spec import load, schema
from ddplaunch.spec.problems import SpecError

SPECS = Path(__file__).resolve().parents[2] / "specs"
VALID = sorted(SPECS.glob("valid-*.yaml"))
INVALID = sorted(SPECS.glob("invalid-*.yaml"))
EXAMPLES = sorted((SPECS.parents[1] / "examples").glob("*/*.yaml"))


def _name(path: Path) -> str:
    return path.name


@pytest.fixture(name="validator", scope="module")
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema.json_schema())


def test_nothing_else_lies_there() -> None:
    """Every file of the folder is used by a test below."""
    used = {*VALID, *INVALID, *(path.with_suffix(".txt") for path in INVALID)}

    assert used == set(SPECS.iterdir())
    assert VALID
    assert INVALID


@pytest.mark.parametrize("path", [*VALID, *EXAMPLES], ids=_name)
def test_a_valid_file_is_valid_for_loader_and_schema(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    load.load(path)

    assert [] == [error.message for error in validator.iter_errors(_data(path))]


@pytest.mark.parametrize("path", INVALID, ids=_name)
def test_an_invalid_file_gets_all_its_problems(path: Path) -> None:
    """Compared whole: places, order, words and hints."""
    with pytest.raises(SpecError) as caught:
        load.parse(path.read_bytes(), path.name)

    assert path.with_suffix(".txt").read_text() == f"{caught.value.message}\n"


@pytest.mark.parametrize(
    "path", [path for path in INVALID if path.name.startswith("invalid-value-")], ids=_name
)
def test_a_wrong_value_is_wrong_for_the_schema_too(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    """An editor shows it before anybody submits."""
    assert [] != list(validator.iter_errors(_data(path)))


@pytest.mark.parametrize(
    "path", [path for path in INVALID if path.name.startswith("invalid-rule-")], ids=_name
)
def test_what_only_rules_say_the_schema_lets_pass(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    """So that these files do test the rules."""
    assert [] == [error.message for error in validator.iter_errors(_data(path))]


def _data(path: Path) -> Any:
    # PyYAML's own reading, as an editor or the chart would have it.
    return yaml.safe_load(path.read_text().replace("\t", "  "))
