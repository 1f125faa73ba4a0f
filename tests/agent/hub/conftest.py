"""A hub whose time and connections are the test's, and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.conftest import _job as _job
from tests.agent.hub.sessions import Hub


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.record.close()
