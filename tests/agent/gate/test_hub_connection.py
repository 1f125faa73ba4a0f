"""The way to the hub, as one node's gate finds it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.busy import BUSY

from ddplaunch.agent.gate.hub_connection import HubConnection
from ddplaunch.agent.system import ports
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Channel, ServerHandshake

KEY = b"key"


@pytest.fixture(name="late_hub")
def _late_hub() -> Iterator[int]:
    """The port of a hub that was busy: it answers only once somebody has given up and asks who it is."""

    def serve() -> None:
        first, _ = listener.accept()
        asks, _ = listener.accept()
        asks.sendall(ServerHandshake(KEY, 0).hello)
        again, _ = listener.accept()
        channels.append(Channel.accept(again, KEY, 0, time.monotonic() + BUSY * 5))
        first.close()
        asks.close()

    channels: list[Channel] = []
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield ports.number(listener)
    thread.join(BUSY * 5)
    listener.close()
    for each in channels:
        each.close()


def test_a_hub_that_answers_late_is_not_of_another_job(late_hub: int) -> None:
    """How it greets shows that it is of ddplaunch, and not of which job: the gate calls again."""
    printed: list[str] = []
    reports: list[str] = []
    reach = HubConnection(
        1,
        [],
        [Endpoint("127.0.0.1", late_hub)],
        KEY,
        0,
        printed.append,
        lambda report: reports.append(report.verdict.code),
    )

    reach.connect(time.monotonic() + BUSY * 20).close()

    assert "store-shared" not in reports
    assert any("it answers, and too late" in line for line in printed)
