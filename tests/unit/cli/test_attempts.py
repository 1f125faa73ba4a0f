"""What is shown of a job that came back: its present attempt, and how the earlier ones ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.cli.ended_jobs import ended

from ddplaunch.agent.contract import Exit, JobStatus, LaunchAttempt, NodeStatus, Verdict, bundle_file, codec

LOST = Verdict.of("network-lost", "node 1 does not answer", "run", nodes=[1])


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A job that lost a node, was stopped, and then came to its end."""
    folder = tmp_path / "state" / "ddplaunch" / "jobs" / "digits" / "1"
    ended(folder, Exit.NODE_AT_FAULT, [LOST])
    ended(folder, Exit.STOPPED, attempt=1)
    ended(folder, Exit.OK, attempt=2)
    return folder


def test_the_present_attempt_has_its_number_and_the_earlier_ones_a_line_each(
    call: Call, folder: Path
) -> None:
    """In `status` and `list`, and as data; a first attempt is not numbered."""
    lines = call("status", "local://digits/1").out.splitlines()
    data = json.loads(call("status", "local://digits/1", "--json").out)

    assert lines[0].startswith("local://digits/1  attempt 2: succeeded after ")
    assert ["  attempt 0: node 1 does not answer", "  attempt 1: it was stopped"] == lines[2:4]
    assert "  `ddplaunch diagnose local://digits/1 --attempt 1` says why" == lines[4]
    assert call("list").out.endswith("attempt 2\n")
    assert (2, [(0, 20), (1, 60)]) == (
        data["attempt"],
        [(each["attempt"], each["exit_code"]) for each in data["earlier"]],
    )
    assert ["network-lost"] == [each["code"] for each in data["earlier"][0]["verdicts"]]


def test_an_attempt_without_a_result_is_shown_as_that(call: Call, folder: Path) -> None:
    """Its machine went with it; the others keep their numbers, which are in their own files."""
    (folder / "run-1" / "status.json").unlink()

    assert "  attempt 1: it left no result" in call("status", "local://digits/1").out.splitlines()


def test_an_earlier_attempt_is_diagnosed_by_its_own_evidence(call: Call, folder: Path) -> None:
    """As it ended, with its own verdict; the last one is what is diagnosed without a number."""
    first = json.loads(call("diagnose", "local://digits/1", "--attempt", "0", "--json").out)
    last = call("diagnose", "local://digits/1", "--attempt", "2")

    assert ["network-lost"] == [verdict["code"] for verdict in first["verdicts"]]
    assert ("local://digits/1", "failed") == (first["handle"], first["state"])
    assert "nothing is wrong: the job succeeded" in last.out
    assert last.out == call("diagnose", "local://digits/1").out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ("local://digits/1", "--attempt", "7"),
            "error: local://digits/1 has kept nothing of an attempt 7: found 0, 1, 2\n",
        ),
        (("some.zip", "--attempt", "0"), "error: only a job has attempts\n"),
    ],
)
def test_an_attempt_that_is_not_kept_is_an_error(
    call: Call, folder: Path, words: tuple[str, ...], error: str
) -> None:
    answer = call("diagnose", *words)

    assert 2 == answer.code
    assert answer.err.startswith(error)


def test_an_attempt_that_was_stopped_says_what_became_of_its_checkpoint(call: Call, folder: Path) -> None:
    """Only what the node itself said at its end: a node that was lost has a detail, too."""
    path = folder / "run-1" / "status.json"
    status = codec.read(JobStatus, str(path))
    kept = NodeStatus(0, exit_code=Exit.STOPPED, detail="digits.pt was written 2.5 s after the signal")
    codec.write(str(path), replace(status, nodes=[kept, NodeStatus(1, detail="does not answer")]))

    assert (
        "  attempt 1: it was stopped; digits.pt was written 2.5 s after the signal"
        in call("status", "local://digits/1").out.splitlines()
    )


RAISED = Verdict.of("rank-failed", "rank 1 raised ValueError: no batch (train.py:7)", "run", ranks=[1])


@pytest.fixture(name="restarted")
def _restarted(tmp_path: Path) -> Path:
    """A job that has ended well: torchrun has started its ranks again after the first attempt."""
    folder = tmp_path / "state" / "ddplaunch" / "jobs" / "digits" / "1"
    ended(folder, Exit.OK)
    status, bundle = (str(folder / "run" / name) for name in ("status.json", "bundle.zip"))
    failed = [LaunchAttempt(0, 1.5, [RAISED])]
    codec.write(status, replace(codec.read(JobStatus, status), failed_attempts=failed))
    bundle_file.write(bundle, replace(bundle_file.read(bundle), failed_attempts=failed))
    return folder


def test_what_a_launch_command_has_survived_is_history(call: Call, restarted: Path) -> None:
    """The job has succeeded and nothing is wrong with it; its failed attempt has a line, and its number."""
    lines = call("status", "local://digits/1").out.splitlines()
    data = json.loads(call("status", "local://digits/1", "--json").out)

    assert lines[0].startswith("local://digits/1  succeeded after ")
    assert [
        "  attempt 0.0: rank 1 raised ValueError: no batch (train.py:7); the launch command went on",
        "  `ddplaunch diagnose local://digits/1 --attempt 0.0` says why",
    ] == lines[2:]
    assert ([], [0]) == (data["verdicts"], [each["launch_attempt"] for each in data["failed_attempts"]])
    assert "nothing is wrong: the job succeeded" in call("diagnose", "local://digits/1").out


@pytest.mark.parametrize("named", ["local://digits/1", "run/bundle.zip"])
def test_an_attempt_within_a_launch_command_is_diagnosed(call: Call, restarted: Path, named: str) -> None:
    """By the job's bundle, which has the evidence of each that failed."""
    found = call("diagnose", named.replace("run/", f"{restarted}/run/"), "--attempt", "0.0", "--json")

    assert ["rank-failed"] == [verdict["code"] for verdict in json.loads(found.out)["verdicts"]]


def test_an_attempt_within_a_launch_command_that_has_not_failed_is_an_error(
    call: Call, restarted: Path
) -> None:
    answer = call("diagnose", "local://digits/1", "--attempt", "0.1")

    assert 2 == answer.code
    assert answer.err.startswith("error: local://digits/1 has kept nothing of an attempt 0.1: found 0.0\n")
