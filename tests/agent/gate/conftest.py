"""Jobs and hosts for tests of the gate; nothing of them is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.jobs import Job


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    job = Job(tmp_path, agent)
    yield job
    job.close()
