"""Addresses in text, and those of this machine."""

from __future__ import annotations

import socket
import time

import pytest
from tests.busy import BUSY

from ddplaunch.agent.transport import endpoints
from ddplaunch.agent.transport.endpoints import Endpoint


def test_several_addresses_in_one_line() -> None:
    """Names, IPv4 and IPv6 with brackets, in their order; what is spelt is what was read."""
    text = "n1:29400,10.0.0.5:29400,[fd00::5]:29400"
    found = endpoints.parse(text)

    assert [Endpoint("n1", 29400), Endpoint("10.0.0.5", 29400), Endpoint("fd00::5", 29400)] == found
    assert text == endpoints.to_text(found)


@pytest.mark.parametrize("text", ["", "n1", ":29400", "n1:", "n1:port", "n1:29400,"])
def test_what_is_no_address(text: str) -> None:
    """A part without host or port is refused, wherever it stands."""
    with pytest.raises(ValueError, match=r"^"):
        endpoints.parse(text)


def can_be_bound(address: str) -> bool:
    """Whether a socket can listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def test_this_machines_addresses_can_be_bound() -> None:
    """What is given to others is where this machine can listen, and no loopback address.

    Bridges of containers come and go beside us, and an IPv6 address that is new cannot be bound at once.
    """
    deadline = time.monotonic() + BUSY * 5
    while unbound := [address for address in endpoints.own_addresses() if not can_be_bound(address)]:
        assert time.monotonic() < deadline, unbound
        time.sleep(0.1)
    assert not [address for address in endpoints.own_addresses() if address.startswith("127.")]
    assert ("lo", "127.0.0.1") in endpoints.interfaces()


def test_an_interface_by_its_name() -> None:
    """Its first address, or nothing where there is no such interface."""
    assert "127.0.0.1" == endpoints.address_of("lo")
    assert endpoints.address_of("nosuch0") is None
