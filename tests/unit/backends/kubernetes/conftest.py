"""An API server of pods for a test, to which KUBECONFIG leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes.api_server import served
from tests.unit.backends.kubernetes.asked_pods import Cluster


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cluster]]:
    cluster = type("_Cluster", (Cluster,), {"pods": {}, "listed": [], "states": {}, "refuses": {}})
    with served(cluster, tmp_path, monkeypatch):
        yield cluster
