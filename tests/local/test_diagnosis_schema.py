"""`diagnose --json` of real jobs has the published shape."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from tests.local.conftest import TRAIN, Desk

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "reference" / "diagnose.schema.json"
TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=2", str(TRAIN)]


def closed(part: Any) -> Any:
    """The schema, which then refuses keys that it does not describe."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    made = {key: closed(value) for key, value in part.items()}
    return made | {"additionalProperties": False} if "properties" in part and "required" in part else made


def problems(data: Any) -> list[str]:
    """Where the data differs from the published schema, and how."""
    validator = Draft202012Validator(closed(json.loads(PUBLISHED.read_text("utf-8"))))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_the_schema_describes_every_key_of_a_failed_jobs_diagnosis(desk: Desk) -> None:
    """From its handle and from its bundle's file; what is renamed, removed or of another kind is found."""
    desk.call("run", "--", *TORCHRUN, "--raise-at", "1")
    by_handle = json.loads(desk.call("diagnose", "local://run", "--json", "--bundle", "it.zip").stdout)
    by_file = json.loads(desk.call("diagnose", "it.zip", "--json").stdout)

    assert ["rank-failed"] == [verdict["code"] for verdict in by_handle["verdicts"]]
    assert by_handle["nodes"]
    assert by_handle["evidence"]["ranks"] == 2
    for data in (by_handle, by_file):
        assert [] == problems(data)
        renamed = deepcopy(data)
        renamed["verdicts"][0]["culprits"] = renamed["verdicts"][0].pop("nodes")
        assert 2 == len(problems(renamed))
        assert ["$.exit_code"] == [each.split(":")[0] for each in problems(data | {"exit_code": "40"})]
        assert ["$.schema"] == [each.split(":")[0] for each in problems(data | {"schema": "v2"})]
