"""For tests of what the hub decides while a job runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.hub.sessions import Hub


@pytest.fixture(name="hub")
def _hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.record.close()
