"""Names, as far as they can be known on any machine."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from tests.busy import BUSY

from ddplaunch.agent.system import resolve
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError


@pytest.mark.parametrize("address", ["10.0.0.5", "::1", "fe80::1%lo"])
def test_an_address_is_its_own_answer(address: str) -> None:
    """Nobody is asked about what is an address already."""
    assert [address] == resolve.resolve(address, time.monotonic())


def test_localhost_resolves() -> None:
    """The system's resolver is asked, and duplicates are dropped."""
    found = resolve.resolve("localhost", time.monotonic() + 5)

    assert found == list(dict.fromkeys(found))
    assert all(map(resolve.is_loopback, found))


def test_a_name_that_cannot_exist_is_unknown() -> None:
    """An empty label is refused by every resolver, and is told as a name that there is not."""
    with pytest.raises(UnknownNameError):
        resolve.resolve("a..b", time.monotonic() + 5)


def test_a_resolver_that_takes_too_long_is_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """getaddrinfo has no bound of its own; ours returns at the deadline."""
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(10) and [])
    started = time.monotonic()

    with pytest.raises(UnansweredNameError, match="in time"):
        resolve.resolve("slow.example", started + 0.1)
    assert time.monotonic() - started < BUSY * 1
    answered.set()


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.1.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("fe80::1", False)],
)
def test_loopback(address: str, expected: bool) -> None:
    """127.0.0.0/8 and ::1 stay on the machine."""
    assert expected == resolve.is_loopback(address)


def test_plain_address() -> None:
    """IPv4 on a socket of both families loses its prefix; everything else stays."""
    expected = ["10.0.0.1", "::1", "10.0.0.1"]

    assert expected == [resolve.plain_address(a) for a in ("::ffff:10.0.0.1", "::1", "10.0.0.1")]
