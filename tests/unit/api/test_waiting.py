"""Waits of `ddplaunch.api`: what they yield, and when a job is given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.ended_jobs import ended

from ddplaunch import api
from ddplaunch.api.submitted import GIVEN_UP_AFTER, Wait

HANDLE = api.Handle("slurm", "7")
NEVER = api.Job(
    HANDLE, api.State.PENDING, 0.0, "b", detail="it is too large", hint="shrink", never_starts=True
)
QUEUED = api.Job(HANDLE, api.State.PENDING, 0.0, "b", detail="other jobs come first")


def test_a_job_is_given_up_when_it_has_been_vain_for_ten_seconds_without_a_break() -> None:
    """A scheduler may think again; the error has the reason, what to do, and the exit code of the command."""
    now = 0.0
    wait = Wait(lambda: now)

    assert [False] * 2 == [wait.is_vain(NEVER), wait.is_vain(QUEUED)]
    now = GIVEN_UP_AFTER
    assert not wait.is_vain(NEVER)
    now = 2 * GIVEN_UP_AFTER
    with pytest.raises(api.NeverStartsError) as given_up:
        wait.check(NEVER)

    error = given_up.value
    assert ("stopped waiting for slurm://7: it is too large", "shrink", 104) == (
        error.message,
        error.hint,
        error.exit_code,
    )


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jobs called `digits`, of which the first succeeded and the second failed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "ddplaunch" / "jobs" / "digits"
    for number, code in ((1, 0), (2, 40)):
        ended(folder / str(number), code)
    return folder


def test_following_yields_lines_states_and_the_diagnosis_last(folder: Path) -> None:
    seen = list(api.follow("local://digits/2"))

    assert ["[0/0] a", "[0/1] b", "[1/2] c"] == [each for each in seen if isinstance(each, str)]
    assert {api.State.FAILED} == {each.state for each in seen if isinstance(each, api.Job)}
    assert isinstance(seen[-1], api.Diagnosis)
    assert 1 == sum(isinstance(each, api.Diagnosis) for each in seen)


def test_all_jobs_that_are_waited_for_come_with_their_diagnosis(folder: Path) -> None:
    """Each once, however its handle is written and however often it is named; none, and there is no wait."""
    found = list(api.wait_all(["local://digits/2", api.Handle("local", "digits/1"), "local://digits/2"]))

    assert {"local://digits/1": "succeeded", "local://digits/2": "failed"} == {
        str(each.job.handle): str(each.job.state) for each in found
    }
    assert 2 == len(found)
    assert [] == list(api.wait_all([]))
    with pytest.raises(api.NotFoundError):
        list(api.wait_all(["local://digits/9"]))
