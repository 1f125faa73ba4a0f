"""What is told before it is certain, how often, and how it is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddplaunch.agent.contract import JobPlan, Verdict
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.preliminary import PreliminaryVerdicts
from ddplaunch.agent.system import subjects


@pytest.fixture(name="record")
def fixture_record(tmp_path: Path) -> Iterator[JobRecord]:
    """Of a job of three nodes."""
    record = JobRecord(JobPlan("trial", 3, 2, ["{python}"], ["train.py"]), str(tmp_path), 0)
    yield record
    record.close()


def unreached(*nodes: int) -> Verdict:
    """Nodes that do not reach the hub."""
    return Verdict("port-filtered", f"{len(nodes)} in vain", "gate", nodes=[*nodes])


def told(record: JobRecord) -> list[str]:
    """Events, oldest first."""
    return [event.text for event in record.bundle().events]


def test_it_is_told_once_for_as_long_as_it_stands(record: JobRecord) -> None:
    """Others join in one by one: the record has them all, the log has the first."""
    outlook = PreliminaryVerdicts(record)
    for nodes in ([1], [1], [1, 2]):
        outlook.publish([unreached(*nodes)])

    assert told(record) == ["port-filtered: 1 in vain"]
    assert [verdict.nodes for verdict in record.verdicts] == [[1, 2]]


def test_it_is_told_anew_of_another_node_or_after_it_had_passed(record: JobRecord) -> None:
    """When nobody reaches the hub, that is where the fault is."""
    outlook = PreliminaryVerdicts(record)
    for nodes in ([1], [0]):
        outlook.publish([unreached(*nodes)])
    outlook.publish([])
    assert record.verdicts == []
    outlook.publish([unreached(0)])

    assert told(record) == 3 * ["port-filtered: 1 in vain"]


def test_it_names_the_machine_of_a_pod(record: JobRecord) -> None:
    """People read it in the hub's log, where nobody adds anything."""
    record.node(1, host="d-1 on worker2")
    one, zero = (subjects.node(node, ["d-0", "d-1"]) for node in (1, 0))
    verdict = Verdict("port-filtered", f"{one} -> {zero}: no answer", "gate", nodes=[1])
    PreliminaryVerdicts(record).publish([verdict])

    sentence = "node 1 (d-1 on worker2) -> node 0 (d-0): no answer"
    assert [f"port-filtered: {sentence}"] == told(record)
    assert [sentence] == [each.sentence for each in record.verdicts]
