"""The JSON that scripts read keeps its keys."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import Exit, RankPace
from ddplaunch.agent.contract.verdict import Written
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.backends.job import State
from ddplaunch.report import Diagnosis, diagnose
from ddplaunch.report import machine as shapes
from ddplaunch.report.machine import diagnosis_data, doctor_data, job_data

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "diagnose.md").read_text("utf-8")
SCHEMA = Draft202012Validator(shapes.json_schema())


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(shapes.json_schema())


def test_what_is_printed_follows_it(diagnosis: Diagnosis) -> None:
    """With evidence and without; `doctor` prints more keys, which are allowed."""
    for data in (
        diagnosis_data(diagnosis),
        diagnosis_data(diagnose(given.job(State.PENDING), None)),
        doctor_data(diagnosis),
    ):
        SCHEMA.validate(json.loads(json.dumps(data)))


@pytest.mark.parametrize("key", list(shapes.DiagnosisData.__annotations__))
def test_a_key_that_is_missing_breaks_it(diagnosis: Diagnosis, key: str) -> None:
    """A reader need not ask whether a key is there."""
    data = json.loads(json.dumps(diagnosis_data(diagnosis)))
    del data[key]

    with pytest.raises(ValidationError, match=f"'{key}' is a required property"):
        SCHEMA.validate(data)


def test_no_field_of_a_verdict_or_of_a_pace_is_left_out() -> None:
    """A verdict's sentence has come from its text and machines already; sources lead into a bundle."""
    fields = {each.name for each in dataclasses.fields(Written)}

    assert fields - {"text", "sources", "machines"} == set(shapes.VerdictData.__annotations__)
    assert {each.name for each in dataclasses.fields(RankPace)} == set(shapes.PaceData.__annotations__)


def test_what_is_printed_names_the_schema_that_is_published(diagnosis: Diagnosis) -> None:
    assert shapes.ID == diagnosis_data(diagnosis)["schema"] == shapes.json_schema()["$id"]


def test_the_example_of_the_page_follows_it() -> None:
    """Readers begin with the example."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    SCHEMA.validate(json.loads(example))
    assert json.loads(example)["verdicts"][0]["code"] in CATALOGUE


def test_the_page_says_what_to_conclude_from_every_exit_code() -> None:
    """And names no code that there is not."""
    rows = re.findall(r"^\| `[a-z`, ]+ \| (\w+) \|", PAGE, re.MULTILINE)
    exits = {str(code) for name, code in vars(Exit).items() if name.isupper()}
    names = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE))

    assert exits - {str(Exit.STOPPED)} == {code for code in rows if code.isdecimal()}
    assert names <= set(CATALOGUE)
    assert {"gpu-stuck", "network-lost"} <= names


def test_diagnose_gives_the_verdicts_and_what_was_looked_at(diagnosis: Diagnosis) -> None:
    """The shape is that of the catalogue; times and counts stand beside it."""
    expected = {
        "schema": "urn:ddplaunch:diagnosis:v1",
        "verdicts": [
            {
                "code": "rank-in-user-code",
                "sentence": "rank 0 has been in evaluate() (train.py:140) for 96 s, "
                "the others wait in barrier",
                "where": "run",
                "nodes": [0],
                "ranks": [0],
                "victims": [1, 2, 3],
                "confidence": 0.9,
                "facts": ["rank 0 has burnt 96 s of CPU", "ranks 1-3 stand in barrier 17"],
                "hint": "call evaluate() on all ranks, or none",
            }
        ],
        "handle": "local://digits/3",
        "state": "failed",
        "exit_code": None,
        "detail": "",
        "hint": "",
        "submitted": given.AT,
        "ended": given.AT + 70,
        "nodes": [{"node": 0, "host": "host0"}, {"node": 1, "host": "host1"}],
        "evidence": {
            "at": given.AT + 60,
            "why": "still",
            "nodes": 2,
            "ranks": 4,
            "silent": [],
            "missing": ["py-spy: not permitted (ptrace) (node 1)"],
            "pace": [
                {"rank": rank, "step": None, "in_collectives": None, "for_data": None} for rank in range(3)
            ],
        },
    }

    assert expected == json.loads(json.dumps(diagnosis_data(diagnosis)))


def test_a_healthy_job_has_an_empty_list() -> None:
    """A script tests the list, not the text."""
    data = diagnosis_data(diagnose(given.job(State.SUCCEEDED), None))

    assert ([], None) == (data["verdicts"], data["evidence"])


def test_status_has_the_same_keys_before_and_after_the_hub_speaks() -> None:
    before = job_data(given.job(State.PENDING))
    after = job_data(given.job(State.RUNNING, status=given.status(waiting_for=[1])))

    assert list(before) == list(after)
    assert (None, [], 0) == (before["phase"], before["nodes"], before["attempt"])
    assert ("running", [1], 2) == (after["phase"], after["waiting_for"], len(after["nodes"]))
