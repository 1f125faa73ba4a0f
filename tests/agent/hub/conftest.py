"""A hub whose time and connections are the test's, and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.jobs import Job
from tests.agent.hub.sessions import Hub


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.record.close()


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    job = Job(tmp_path, agent)
    yield job
    job.close()
