"""The job file's JSON Schema, for editors, for the chart's values and for messages. Pure and deterministic.

It describes single values. Only `rules` compares several.
"""

from functools import cache
from typing import Any

from ddplaunch.agent.job_file.rules import Path
from ddplaunch.agent.job_file.units import format_duration
from ddplaunch.spec.models import job_model

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:ddplaunch:job:v1"

_MARKS = ("x-hint", "x-slug", "x-unit", "x-wanted", "x-whole")
"""Keys for `messages`, and `x-whole` for `defaults`; see `fields`."""


def json_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12. It refuses unknown keys, except in free-form mappings."""
    made = _published(job_model().model_json_schema())
    return {"$schema": DIALECT, "$id": ID, **made}


def _published(part: Any, *, names: bool = False) -> Any:
    """Return pydantic's schema without the marks. `names`: the keys of *part* are names, not keywords."""
    if isinstance(part, list):
        return [_published(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {
        key: value
        if key in ("default", "examples")
        else _published(value, names=key in ("properties", "$defs"))
        for key, value in part.items()
        if names or (key not in _MARKS and (key != "title" or "properties" in part))
    }
    if names:
        return made
    if (patterns := made.pop("patternProperties", None)) is not None:
        # pydantic would accept keys of another form.
        ((pattern, value),) = patterns.items()
        made |= {"propertyNames": {"pattern": pattern}, "additionalProperties": value}
    if "properties" in made:
        made = {**made, "required": made.get("required", [])}
    if "$ref" in made:
        made.pop("default", None)
    if isinstance(made.get("default"), float):  # the only floats that have a default are durations
        made["default"] = format_duration(made["default"])
    return made


@cache
def _definitions() -> dict[str, Any]:
    return job_model().model_json_schema()


def at(path: Path) -> dict[str, Any]:
    """Return the schema, with marks, at *path*, which may contain pydantic's name for part of a union."""
    part = _resolved(_definitions())
    of_key = path[-1:] == ("[key]",)
    for step in path[:-2] if of_key else path:
        if "properties" in part:
            below = part["properties"].get(step)
        elif "patternProperties" in part:
            (below,) = part["patternProperties"].values()
        else:
            below = part.get("items")
        if below is None:
            break
        part = _resolved(below)
    return dict(part["propertyNames"]) if of_key else part


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Return *part* with its `$ref` resolved; of a union, its first part that is neither null nor words."""
    if "$ref" in part:
        return {**_definitions()["$defs"][part["$ref"].rpartition("/")[2]], **part}
    if "anyOf" not in part:
        return part
    kinds = [each for each in part["anyOf"] if each.get("type") != "null" and "const" not in each]
    words = [each["const"] for each in part["anyOf"] if "const" in each]
    if len(kinds) == 2 and "enum" in kinds[1]:
        words = list(kinds.pop()["enum"])
    kind, *others = kinds
    if others:
        return {**kind, **part}
    if words:
        return {**kind, "x-words": words, "x-wanted": f"{kind['x-wanted']}, or {' or '.join(words)}"}
    return _resolved(kind)
