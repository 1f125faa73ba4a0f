"""Whether a job that was told to end has written something down since."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddplaunch.agent.contract import Env, JobPlan
from ddplaunch.agent.supervisor import ends

PLAN = JobPlan("digits", 1, 1, [], ["train.py"])
SIGNAL = 1000.0


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the ranks' DDPLAUNCH_RESUME_DIR."""
    monkeypatch.setenv(Env.RESUME_DIR, str(tmp_path))
    return tmp_path


def write(path: Path, at: float) -> None:
    """A file that was written then."""
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, (at, at))


def test_the_newest_file_is_named_with_its_time_after_the_signal(folder: Path) -> None:
    """Wherever it lies below the folder."""
    write(folder / "old.pt", SIGNAL - 60)
    write(folder / "step-7" / "model.pt", SIGNAL + 3)

    assert "step-7/model.pt was written 3.0 s after the signal" == ends.describe_checkpoint(PLAN, SIGNAL)


def test_a_file_that_was_written_at_once_counts(folder: Path) -> None:
    """Its time is that of the clock's last tick, which may have been before the signal."""
    write(folder / "last.pt", SIGNAL - 0.008)

    assert "last.pt was written 0.0 s after the signal" == ends.describe_checkpoint(PLAN, SIGNAL)


def test_an_older_checkpoint_is_all_there_is(folder: Path) -> None:
    """What is lost lies between it and the end."""
    write(folder / "old.pt", SIGNAL - 0.1)

    assert f"nothing was written into {folder} after the signal" == ends.describe_checkpoint(PLAN, SIGNAL)


def test_a_job_that_writes_no_checkpoints_hears_nothing(folder: Path) -> None:
    """Unless its job file says that a later attempt resumes."""
    resumes = JobPlan("digits", 1, 1, [], ["train.py"], resume_args=["--resume"])

    assert "" == ends.describe_checkpoint(PLAN, SIGNAL)
    assert f"nothing was written into {folder} after the signal" == ends.describe_checkpoint(resumes, SIGNAL)


def test_a_folder_that_is_not_there_is_not_judged(folder: Path) -> None:
    """It may be on a file system that this node does not see."""
    plan = JobPlan("digits", 1, 1, [], ["train.py"], resume_dir=str(folder / "elsewhere"))

    assert "" == ends.describe_checkpoint(plan, SIGNAL)
