"""Names, as far as they can be known on any machine."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from tests.busy import BUSY

from ddplaunch.agent.system import phrases, resolve
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError


@pytest.mark.parametrize("address", ["10.0.0.5", "::1", "fe80::1%lo"])
def test_an_address_is_its_own_answer(address: str) -> None:
    assert [address] == resolve.resolve(address, time.monotonic())


def test_localhost_resolves_without_duplicates() -> None:
    found = resolve.resolve("localhost", time.monotonic() + 5)

    assert found == list(dict.fromkeys(found))
    assert all(map(resolve.is_loopback, found))


def test_a_name_that_cannot_exist_is_unknown() -> None:
    """An empty label is refused by every resolver, and is told as a name that there is not."""
    with pytest.raises(UnknownNameError):
        resolve.resolve("a..b", time.monotonic() + 5)


def test_a_resolver_that_is_too_slow_is_unanswered_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
def test_addresses_that_stay_on_the_machine_are_loopback(address: str, expected: bool) -> None:
    assert expected == resolve.is_loopback(address)


def test_an_ipv4_address_loses_its_prefix_of_a_socket_of_both_families() -> None:
    expected = ["10.0.0.1", "::1", "10.0.0.1"]

    assert expected == [resolve.plain_address(a) for a in ("::ffff:10.0.0.1", "::1", "10.0.0.1")]


PODS = [f"run-{node}.run.team.svc.cluster.local" for node in range(3)]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["n1", "n2"], "node 1 (n2)"),
        (["n1.lab.example", "n2.lab.example"], "node 1 (n2)"),
        (["n1.lab.example", "n2.other.example"], "node 1 (n2.other.example)"),
        (["n1", "n2.lab.example"], "node 1 (n2.lab.example)"),
        (PODS, "node 1 (run-1)"),
        (["10.0.0.1", "10.0.0.2"], "node 1 (10.0.0.2)"),
        (["fd00::1", "fd00::2"], "node 1 (fd00::2)"),
        (["d-0 on w0.lab.example", "d-1 on w1.lab.example"], "node 1 (d-1 on w1.lab.example)"),
        (["127.0.0.1", "127.0.0.1"], "node 1"),
        ([], "node 1"),
    ],
)
def test_a_node_is_called_by_its_name_without_a_domain_that_all_share(names: list[str], said: str) -> None:
    assert said == phrases.node(1, names)


def test_of_thousands_of_nodes_none_is_asked_for_its_domain_twice() -> None:
    assert "nodes 0 (run-0) and 2 (run-2)" == phrases.nodes([2, 0], PODS)
