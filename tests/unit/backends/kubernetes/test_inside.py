"""A word in a pod, where the API server does not say a word."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes.test_api import kubeconfig

from ddplaunch.backends.kubernetes import inside
from ddplaunch.backends.kubernetes.api import Api


@pytest.mark.timeout(20)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_is_mute_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """It takes the connection, and neither shakes hands nor answers."""
    monkeypatch.setattr(inside, "_CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        kubeconfig(tmp_path, f"{scheme}://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

        assert inside.run(Api(), "lab", "digits-0", "hub", ["true"]) is None
