"""docs/reference/job-file.md: every key of the model, each with an example that the model takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddplaunch.spec import schema
from ddplaunch.spec.schema import json_schema

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "job-file.md").read_text("utf-8")
ROWS = {
    row[0]: row
    for row in re.findall(r"^\| `(\S+)` \| (.*?) \| (.*?) \| (.*?) \| (.+) \|$", PAGE, re.MULTILINE)
}

FITTING: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _keys(part: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of all keys that have a row of their own."""
    whole = json_schema()
    for key, each in part["properties"].items():
        if "$ref" in each:
            yield from _keys(whole["$defs"][each["$ref"].rpartition("/")[2]], (*at, key))
        else:
            yield (*at, key)


def test_every_key_has_a_row() -> None:
    """With its type and with what it is for; one that nobody finds there is as good as missing."""
    keys = {".".join(path) for path in _keys(json_schema(), ())}

    assert set() == keys - ROWS.keys()
    assert [] == [key for key, (_, kind, *_, about) in ROWS.items() if not kind or not about]
    assert {"volumes[n].mount_path", "secrets.NAME.env", "kubernetes.tolerations[n].effect"} <= ROWS.keys()


@pytest.mark.parametrize("key", ROWS)
def test_every_key_has_an_example_of_its_type(key: str) -> None:
    example = yaml.safe_load(ROWS[key][3].strip("`"))
    path = tuple(0 if step == "[n]" else step for step in re.findall(r"[^.\[\]]+|\[n\]", key))
    kinds = schema.at(path).get("type", [])

    assert ROWS[key][3].startswith("`"), ROWS[key]
    words = [kinds] if isinstance(kinds, str) else kinds
    assert not words or any(isinstance(example, FITTING[kind]) for kind in words)


def test_a_default_is_that_of_the_model() -> None:
    assert ["`1`", "`auto`", "`ports`", "must be given", ""] == [
        ROWS[key][2]
        for key in ("nodes", "watchdog.kill_after", "kubernetes.network_policy", "name", "slurm.partition")
    ]
