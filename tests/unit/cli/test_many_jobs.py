"""A name among many jobs on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.cli.ended_jobs import ended

from ddplaunch.agent.contract import Exit
from ddplaunch.backends import files


@pytest.mark.parametrize("words", [["status", "digits"], ["status"]])
def test_only_the_status_of_the_job_that_is_meant_is_read(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Each of them has hundreds of nodes, and a thousand of them took two seconds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    jobs = tmp_path / "ddplaunch" / "jobs" / "digits"
    for number in range(1, 13):
        ended(jobs / str(number), Exit.OK)
    read: list[Path] = []
    contents = files.contents

    def noted(path: Path, most: int = files.MAX_SMALL) -> bytes:
        read.append(path)
        return contents(path, most)

    monkeypatch.setattr(files, "contents", noted)
    done = call(*words)

    statuses = [path.relative_to(jobs).parts[0] for path in read if path.name == "status.json"]
    assert 0 == done.code
    assert {"12"} == set(statuses)
