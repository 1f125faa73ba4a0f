"""The supervisor's line to the hub, by whichever of its addresses answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.agent.gate.jobs import wait_for as until
from tests.busy import BUSY
from tests.ports import own_port

from ddplaunch.agent.contract import NodeEvidence
from ddplaunch.agent.contract.messages import Evidence, Finished, Stopping
from ddplaunch.agent.supervisor import hub_link as link_module
from ddplaunch.agent.supervisor.hub_link import HubLink
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import Channel

KEY = b"key"


class Hub:
    """Takes one supervisor after the other; what they say is not looked at."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = Endpoint("127.0.0.1", self.listener.getsockname()[1])
        self.channels: list[Channel] = []
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.channels.append(Channel.accept(connection, KEY, 0, time.monotonic() + BUSY * 5))

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for channel in self.channels:
            channel.close()


@pytest.fixture(name="hub")
def _hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


def dead() -> Endpoint:
    """Where nobody listens."""
    return Endpoint("127.0.0.1", own_port())


def test_the_next_address_is_tried_and_nothing_is_said(hub: Hub) -> None:
    """Nor where there is no hub at all."""
    told: list[str] = []
    link = HubLink([Endpoint("nosuch.invalid", 1), dead(), hub.address], KEY, 0, 0, told.append)
    without = HubLink([], KEY, 0, 0, told.append)
    for each in (link, without):
        each.call_first()
        each.connect_if_due()

    assert (True, False, []) == (link.is_up, without.is_up, told)
    link.close()


def test_a_hub_that_is_lost_is_called_again_where_it_answered(hub: Hub) -> None:
    told: list[str] = []
    link = HubLink([dead(), hub.address], KEY, 0, 0, told.append)
    link.call_first()
    until(lambda: hub.channels)
    hub.channels[0].close()
    until(lambda: list(link.receive()) == [] and not link.is_up)
    link.connect_if_due()

    link.close()
    lost, found = told
    assert lost.startswith("the hub is lost (")
    assert lost.endswith("the training goes on, and this node calls it again")
    assert found == "the hub answers again"


def test_a_hub_that_answers_nowhere_is_told_once() -> None:
    told: list[str] = []
    link = HubLink([dead(), dead()], KEY, 0, 0, told.append)
    link.call_first()

    assert not link.is_up
    assert 1 == len(told)
    assert "cannot be reached" in told[0]


def test_a_hub_in_the_place_of_another_is_told_what_lasts(hub: Hub) -> None:
    """The last report of each kind about each thing; not what was forgotten, and no mere message."""
    link = HubLink([hub.address], KEY, 0, 0, lambda _: None)
    link.call_first()
    until(lambda: hub.channels)
    link.send(Evidence(0, NodeEvidence(0, "n0", 0.0, "running")))
    for about, code in ((7, 1), (8, 2), (7, 3)):
        link.report(Finished(code), about)
    link.report(Stopping("SIGTERM"))
    link.forget(Stopping)
    hub.channels[0].close()
    until(lambda: list(link.receive()) == [] and not link.is_up)
    assert link.may_speak
    link.connect_if_due()
    until(lambda: len(hub.channels) == 2)
    heard = [hub.channels[1].receive(BUSY * 5) for _ in range(3)]

    link.close()
    assert ["join", "finished", "finished"] == [each[0] for each in heard if each]
    assert [3, 2] == [each[1]["exit_code"] for each in heard[1:] if each]


def test_a_hub_that_says_nothing_counts_as_away(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_SILENT", 0.5)
    link = HubLink([hub.address], KEY, 0, 0, lambda _: None)
    link.call_first()
    until(lambda: hub.channels)
    assert 0.0 == link.down_for
    until(lambda: link.down_for > 0.5)
    hub.channels[0].send("alive", {})
    until(lambda: list(link.receive()) and True)

    assert 0.0 == link.down_for
    link.close()


def test_a_lost_hub_was_away_since_its_last_word(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own watch goes on where it was, and does not begin again."""
    monkeypatch.setattr(link_module, "_SILENT", 0.2)
    link = HubLink([hub.address], KEY, 0, 0, lambda _: None)
    link.call_first()
    until(lambda: hub.channels)
    until(lambda: link.down_for > 0.5)
    hub.channels[0].close()
    until(lambda: list(link.receive()) == [] and not link.is_up)

    assert link.down_for > 0.5
    assert link.may_speak


def test_a_hub_that_is_frozen_for_long_speaks_no_more(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its connection stands: who waits for its word waits in vain."""
    monkeypatch.setattr(link_module, "_FROZEN", 0.5)
    link = HubLink([hub.address], KEY, 0, 0, lambda _: None)
    link.call_first()
    assert link.may_speak
    until(lambda: not link.may_speak)

    assert link.is_up
    link.close()
