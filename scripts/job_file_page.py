"""The page on the job file: every key with its type, its default and an example, from the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml

from ddplaunch.spec import template
from ddplaunch.spec.schema import json_schema

_HEAD = """\
# The job file

Generated from the model: change that, then run `make docs`.

A job file is YAML and contains `apiVersion: ddplaunch/v1`. A key that is not on this page is an error, and
`ddplaunch validate` suggests the key that you may have meant. If the default is empty, nothing is set, and
the description says what happens then. Keys of a section are written with a dot, as for `--set`; `[n]`
stands for any item of a list, and `NAME` for any name. Write durations as `10s`, `2m` or `1h30m`, and
quantities as `16Gi` or `500M`. For editors, [job.schema.json](job.schema.json) has the same.

"""


def text() -> str:
    """Every key of the job file: its type, its default, an example, and what it is for."""
    whole = json_schema()
    examples = yaml.safe_load(re.sub(r"^#(?=\w| {2})", "", template.text("digits"), flags=re.MULTILINE))
    return _HEAD + "\n\n".join(_section(whole, whole, "", examples)) + "\n"


def _section(whole: dict[str, Any], part: dict[str, Any], at: str, examples: Any) -> Iterator[str]:
    """The heading, the table and the parts of one section, at a path such as `slurm.container.`."""
    if at:
        yield f"## {at.rstrip('.')}"
        yield part["description"]
    rows, below = [], []
    for key, each in part["properties"].items():
        path, example = f"{at}{key}", _at(examples, key)
        inner = _inner(whole, each)
        if inner is not None:
            below.append((f"{path}{inner[1]}.", inner[0], inner[2](example)))
        if "$ref" in each:
            continue  # a section has nothing but its keys
        default = "must be given" if key in part.get("required", []) else _code(each.get("default"))
        shown = _code(_example(each, example))
        about = each["description"].replace("|", "&#124;")
        rows.append(f"| `{path}` | {_kind(whole, each)} | {default} | {shown} | {about} |")
    yield (
        "\n".join(["| key | type | default | example | |\n|---|---|---|---|---|", *rows])
        if rows
        else "No keys."
    )
    for path, inner_part, inner_examples in below:
        yield from _section(whole, inner_part, path, inner_examples)


def _example(part: dict[str, Any], shown: Any) -> Any:
    """A value that is no default: what `ddplaunch init` shows, else one that the schema knows."""
    default = part.get("default")
    if shown not in (None, default, [], {}):
        return shown
    one = _one(part)
    known = [each for each in [*part.get("examples", []), *one.get("examples", [])] if each != default]
    if known:
        return known[0]
    if "const" in part:
        return part["const"]
    words = one.get("enum") or (one.get("items") or {}).get("enum")
    if words:
        word = next(word for word in words if word != default)
        return word if "enum" in one else [word]
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int) else default


def _at(examples: Any, key: str) -> Any:
    return examples.get(key) if isinstance(examples, dict) else None


def _inner(
    whole: dict[str, Any], part: dict[str, Any]
) -> tuple[dict[str, Any], str, Callable[[Any], Any]] | None:
    """The section below a key, the end of its path, and what finds its example in the key's."""
    if "$ref" in (one := _one(part)):
        return _resolved(whole, one), "", lambda example: example
    if "$ref" in (item := _one(one.get("items") or {})):
        return _resolved(whole, item), "[n]", lambda items: _merged(items or [])
    if "$ref" in (value := _one(one.get("additionalProperties") or {})):
        return _resolved(whole, value), ".NAME", lambda values: _merged((values or {}).values())
    return None


def _merged(examples: Iterable[Any]) -> dict[str, Any]:
    """One example of each key that several examples have."""
    made: dict[str, Any] = {}
    for each in examples:
        made |= (
            {key: value for key, value in each.items() if key not in made} if isinstance(each, dict) else {}
        )
    return made


def _one(part: Any) -> dict[str, Any]:
    """The part of a union that is no null, or the part itself."""
    if not isinstance(part, dict):
        return {}
    others = [each for each in part.get("anyOf", []) if each.get("type") != "null"]
    return others[0] if len(others) == 1 else part


def _resolved(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = whole["$defs"][part["$ref"].rpartition("/")[2]]
    return found


def _kind(whole: dict[str, Any], part: dict[str, Any]) -> str:
    """The type of a value in words."""
    part = _one(part)
    if "$ref" in part:
        return "mapping, see below"
    if words := ([part["const"]] if "const" in part else part.get("enum")):
        return " or ".join(f"`{word}`" for word in words)
    if "anyOf" in part:
        return " or ".join(_kind(whole, each) for each in part["anyOf"])
    kinds = part.get("type", "value")
    if isinstance(kinds, list):
        return " or ".join(_kind(whole, {**part, "type": kind}) for kind in kinds)
    if kinds == "array":
        return f"list of {_plural(_kind(whole, part.get('items') or {}))}"
    if kinds == "object":
        value = (
            _kind(whole, part["additionalProperties"])
            if part.get("additionalProperties") not in (None, True, False)
            else ""
        )
        return f"names with {value}" if value else "mapping"
    return {"string": "text", "integer": "whole number", "boolean": "`true` or `false`"}.get(kinds, kinds)


def _plural(kind: str) -> str:
    return {"text": "texts", "value": "values", "mapping, see below": "mappings, see below"}.get(kind, kind)


def _code(value: Any) -> str:
    """A value as one writes it in YAML, as code; "" for none."""
    if value is None or value in ((), [], {}):
        return ""
    text = (
        yaml.safe_dump(value, default_flow_style=True, width=1_000, sort_keys=False)
        .removesuffix("...\n")
        .strip()
    )
    return f"`{text.replace('|', '&#124;')}`"
