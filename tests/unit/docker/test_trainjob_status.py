"""The sidecar that writes a verdict into a TrainJob's status: whose verdict stands there."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ddplaunch.agent.contract import Exit, Verdict
from ddplaunch.agent.platforms import termination

FILE = Path(__file__).parents[3] / "docker/agent/trainjob_status.py"
BEGUN = 1795579200.0
FAILED = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"}
MISSING = {"code": "node-missing", "sentence": "node 1 has not come"}
UNANSWERED = {"code": "dns-unanswered", "sentence": "node 1's resolver does not answer"}
LATE = {"code": "version-differs", "sentence": "node 1 has another torch"}


@pytest.fixture(name="status", scope="module")
def _status() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trainjob_status", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(
    status: ModuleType, there: list[dict[str, Any]], verdict: dict[str, str], begun: float = BEGUN
) -> list[dict[str, Any]]:
    """The conditions, when this pod has written what it has to write, a second after its beginning."""
    found = status.with_verdict(there, verdict, begun, begun + 1)
    return there if found is None else list(found)


def messages(conditions: list[dict[str, Any]]) -> list[str]:
    """Of the verdicts among them."""
    return [each["message"] for each in conditions if each["type"] == "Verdict"]


def test_a_verdict_is_a_condition_beside_the_others(status: ModuleType) -> None:
    """In front of them: the last one is what `kubectl get trainjob` shows as the state."""
    made, failed = written(status, [FAILED], UNANSWERED)

    assert FAILED == failed
    assert {
        "type": "Verdict",
        "status": "True",
        "reason": "DnsUnanswered",
        "message": "dns-unanswered: node 1's resolver does not answer",
        "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGUN + 1)),
    } == made


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (MISSING, UNANSWERED, UNANSWERED),
        (UNANSWERED, MISSING, UNANSWERED),
        (UNANSWERED, LATE, UNANSWERED),
        (MISSING, MISSING, MISSING),
    ],
)
def test_of_two_nodes_the_one_that_knows_more_is_heard(
    status: ModuleType, first: dict[str, str], second: dict[str, str], stands: dict[str, str]
) -> None:
    """A node that did not come may say why itself; else the first verdict stands."""
    both = written(status, written(status, [], first), second)

    assert [f"{stands['code']}: {stands['sentence']}"] == messages(both)


def test_a_later_attempt_writes_over_an_earlier_one(status: ModuleType) -> None:
    """What is older than this pod is no verdict of its own attempt."""
    again = written(status, written(status, [], UNANSWERED), LATE, BEGUN + 60)

    assert ["version-differs: node 1 has another torch"] == messages(again)


def test_the_agents_message_has_the_verdict(
    status: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one. A node that ends well, one that was stopped, and half a message have none."""
    path = tmp_path / "message"
    monkeypatch.setenv("DDPLAUNCH_TERMINATION", str(path))
    assert status.first_verdict(path) is None

    termination.write(Exit.OK, [])
    assert status.first_verdict(path) is None
    termination.write(Exit.STOPPED, [])
    assert status.first_verdict(path) is None
    verdict = Verdict.of("dns-unanswered", "node 1's resolver does not answer", "gate", nodes=[1])
    termination.write(Exit.NODE_AT_FAULT, [verdict])
    assert verdict.sentence == status.first_verdict(path)["sentence"]
    path.write_text(json.dumps({"verdicts": []})[:-3])
    assert status.first_verdict(path) is None
