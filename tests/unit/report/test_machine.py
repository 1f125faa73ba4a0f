"""The JSON that scripts read keeps its keys."""

from __future__ import annotations

import json

from tests.unit.report import conftest as given

from ddplaunch.backends.job import State
from ddplaunch.report.diagnosis import Diagnosis, diagnose
from ddplaunch.report.machine import diagnosis_data, job_data


def test_diagnose_gives_the_verdicts_and_what_was_looked_at(diagnosis: Diagnosis) -> None:
    """The shape is that of the catalogue; times and counts stand beside it."""
    expected = {
        "schema": "urn:ddplaunch:diagnosis:v1",
        "verdicts": [
            {
                "code": "rank-in-user-code",
                "sentence": "rank 0 is in evaluate() (train.py:140) for 96 s, the others wait in barrier",
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
    """A script need not ask whether a key is there."""
    before = job_data(given.job(State.PENDING))
    after = job_data(given.job(State.RUNNING, status=given.status(waiting_for=[1])))

    assert list(before) == list(after)
    assert (None, [], 0) == (before["phase"], before["nodes"], before["attempt"])
    assert ("running", [1], 2) == (after["phase"], after["waiting_for"], len(after["nodes"]))
