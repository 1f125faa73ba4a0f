"""The job file's JSON Schema, for editors and for the chart's values. Pure and deterministic.

It says what one value may be; what values may not be together is only said by `rules`.
"""

from typing import Any

import msgspec

from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.units import format_duration

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID = "urn:ddplaunch:job:v1"


def json_schema() -> dict[str, Any]:
    """Draft 2020-12; unknown keys are refused everywhere but in free-form mappings."""
    made = msgspec.json.schema(JobSpec)
    definitions = {name: _as_written(part) for name, part in sorted(made["$defs"].items())}
    job = definitions.pop("JobSpec")
    return {"$schema": DIALECT, "$id": ID, **job, "$defs": definitions}


def _as_written(part: Any) -> Any:
    """The schema of the text in the file, where the model holds the number that was made of it."""
    if isinstance(part, list | tuple):
        return [_as_written(item) for item in part]
    if not isinstance(part, dict):
        return part
    part = {key: _as_written(value) for key, value in part.items()}
    if written := part.pop("x-written-as", None):
        part["type"] = written if len(written) > 1 else written[0]
    if isinstance(part.get("default"), float):  # durations are the only floats that have one
        part["default"] = format_duration(part["default"])
    return part
