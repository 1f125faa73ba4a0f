"""A job's plan lies in its folder, or follows from the job file that lies there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gate.jobs import make_plan
from tests.agent.job_file.jobs import text

from ddplaunch.agent.contract import Files, codec
from ddplaunch.agent.hub import plan_file


def test_the_launchers_plan_is_read_without_verdicts(tmp_path: Path) -> None:
    plan = make_plan()
    codec.write(str(tmp_path / Files.PLAN), plan)

    assert (plan, []) == plan_file.read(plan_file.find(str(tmp_path)))


def test_the_plan_follows_from_the_job_file(tmp_path: Path) -> None:
    """A Helm chart has written that, and what is wrong with it comes along."""
    (tmp_path / Files.JOB).write_text(text(name="run", retries=1))
    plan, refused = plan_file.read(plan_file.find(str(tmp_path)))

    assert ("run", ["job-file-wrong"]) == (plan.job, [each.code for each in refused])


def test_a_folder_without_either_is_an_error(tmp_path: Path) -> None:
    """The path in the message is the plan's."""
    path = plan_file.find(str(tmp_path))

    assert str(tmp_path / Files.PLAN) == path
    with pytest.raises(FileNotFoundError):
        plan_file.read(path)
