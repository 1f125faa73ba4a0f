"""The JSON Schema of the job file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema

from ddplaunch.spec import load, schema
from ddplaunch.spec.models import JobSpec


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from _parts(value)
    elif isinstance(part, list):
        for item in part:
            yield from _parts(item)


def test_it_is_a_schema() -> None:
    """Of the draft that it names, with an id that points to no host."""
    made = schema.json_schema()
    jsonschema.Draft202012Validator.check_schema(made)

    assert schema.DIALECT == made["$schema"]
    assert "urn:ddplaunch:job:v1" == made["$id"]


def test_unknown_keys_are_refused_in_every_section() -> None:
    """Only mappings without fixed keys are open."""
    sections = [part for part in _parts(schema.json_schema()) if "properties" in part]

    assert len(sections) > 10
    assert [False] * len(sections) == [part["additionalProperties"] for part in sections]


def test_every_key_is_described() -> None:
    """An editor shows the sentence; the reference page is made of it."""
    keys = [
        (name, value.get("description", ""))
        for part in _parts(schema.json_schema())
        for name, value in part.get("properties", {}).items()
    ]

    assert len(keys) > 80
    assert [] == [name for name, description in keys if not description.endswith(".")]


def test_defaults_are_written_as_a_person_writes_them() -> None:
    """A job file of nothing but the schema's defaults is the smallest job."""
    made = schema.json_schema()
    data: dict[str, Any] = {"apiVersion": "ddplaunch/v1", "name": "job", "command": ["train.py"]}
    for key, value in made["properties"].items():
        if "$ref" in value:
            section = made["$defs"][value["$ref"].rpartition("/")[2]]["properties"]
            data[key] = {name: part["default"] for name, part in section.items() if "default" in part}
        elif "default" in value:
            data[key] = value["default"]
    smallest = JobSpec(apiVersion="ddplaunch/v1", name="job", command=("train.py",))

    assert "auto" == data["watchdog"]["kill_after"]
    assert smallest == load.parse(json.dumps(data).encode(), "job.yaml")
