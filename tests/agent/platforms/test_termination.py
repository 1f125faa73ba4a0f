"""A container's last words: whole, short enough, and where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddplaunch.agent.contract import GATE_LEAVES, Env, Exit, JobPlan, Verdict
from ddplaunch.agent.platforms import termination


def verdict(code: str, facts: int = 0, length: int = 40) -> Verdict:
    """One with so many long facts."""
    return Verdict.of(code, "s" * length, "run", [3], [7], [1, 2], facts=["f" * 200] * facts, hint="h" * 100)


def test_verdicts_and_exit_code_that_fit_are_told_as_they_are() -> None:
    said = json.loads(termination.text(20, [verdict("port-filtered", 1)]))

    assert 20 == said["exit_code"]
    assert ["port-filtered"] == [each["code"] for each in said["verdicts"]]
    assert ["f" * 200] == said["verdicts"][0]["facts"]


@pytest.mark.parametrize("facts", [0, 1, 10, 300])
@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("letter", ["s", "ü", "\n", '"'])
def test_a_termination_message_of_many_verdicts_is_valid_json_with_the_first_culprits(
    facts: int, count: int, letter: str
) -> None:
    long = Verdict.of(
        "a", letter * 3000, "run", list(range(2000)), [7], list(range(4000)), hint=letter * 3000
    )
    text = termination.text(50, [verdict("collective-mismatch", facts)] * count + [long])

    assert len(text.encode()) <= termination.LIMIT
    said = json.loads(text)
    assert 50 == said["exit_code"]
    assert ("collective-mismatch", [3]) == (said["verdicts"][0]["code"], said["verdicts"][0]["nodes"])


@pytest.mark.parametrize("letter", ["s", "ü", "\n"])
def test_of_a_verdict_of_any_size_the_code_is_told(letter: str) -> None:
    huge = Verdict.of(
        "unknown", letter * 9000, "run", list(range(5000)), list(range(9000)), hint=letter * 9000
    )
    text = termination.text(50, [huge])

    assert len(text.encode()) <= termination.LIMIT
    assert ["unknown"] == [each["code"] for each in json.loads(text)["verdicts"]]


def test_the_termination_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is mounted by itself: another file in its place would not be read. What was there before is gone."""
    path = tmp_path / "termination-log"
    path.write_text("x" * 9000)
    number = path.stat().st_ino
    monkeypatch.setenv(Env.TERMINATION, str(path))
    termination.write(0, [])

    assert ({"verdicts": [], "exit_code": 0}, number) == (json.loads(path.read_text()), path.stat().st_ino)


def test_outside_of_a_container_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(Env.TERMINATION, raising=False)
    termination.write(0, [])
    monkeypatch.setenv(Env.TERMINATION, str(tmp_path / "no" / "folder"))
    termination.write(0, [])

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("node", "code", "elastic", "last"),
    [
        (0, Exit.HANG, False, False),
        (1, Exit.HANG, False, True),
        (1, Exit.HANG, True, True),
        (0, Exit.OK, False, False),
        (0, Exit.OK, True, True),
        (1, Exit.OK, True, False),
    ],
)
def test_the_pod_that_ends_the_job_does_not_take_the_logs_of_others_with_it(
    monkeypatch: pytest.MonkeyPatch, node: int, code: int, elastic: bool, last: bool
) -> None:
    """Node 0's fails first, for it has the bundle; where its success is the Job's, it ends last."""
    monkeypatch.setenv(Env.TERMINATION, "/dev/termination-log")
    assert last == termination.goes_last(node, code, elastic)
    monkeypatch.delenv(Env.TERMINATION)
    assert not termination.goes_last(node, code, elastic)


@pytest.mark.parametrize(
    ("least", "node", "in_pod", "code"),
    [(2, 1, True, 0), (2, 0, True, 20), (None, 1, True, 20), (2, 1, False, 20)],
)
def test_of_an_elastic_job_node_zero_alone_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, least: int | None, node: int, in_pod: bool, code: int
) -> None:
    monkeypatch.setenv(Env.TERMINATION, "/dev/termination-log" if in_pod else "")
    plan = JobPlan("job", 3, 1, [], ["train.py"], min_nodes=least)

    assert code == termination.of_gate(plan, node, Exit.NODE_AT_FAULT)
    assert Exit.OK == termination.of_gate(plan, node, Exit.OK)
    stopped = Exit.STOPPED if code else GATE_LEAVES  # by which it is given another pod
    assert stopped == termination.of_gate(plan, node, Exit.STOPPED)
