"""Addresses at which a process listens, as text for other nodes; and the addresses of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.system.resolve import is_loopback


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> list[Endpoint]:
    """Return the endpoints in 'n1:29400,10.0.0.5:29400,[fd00::5]:29400'. Raises ValueError."""
    endpoints = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(part)
        endpoints.append(Endpoint(host.strip("[]"), int(port)))
    return endpoints


def to_text(addresses: Sequence[Endpoint]) -> str:
    """Return the endpoints as text that `parse` reads."""
    return ",".join(map(str, addresses))


def own_addresses() -> list[str]:
    """Return the addresses of all interfaces that are up, IPv4 first; no loopback, no link-local ones."""
    addresses = [address for _, address in interfaces()]
    return [each for each in addresses if not is_loopback(each) and not each.startswith("169.254.")]


def interfaces() -> list[tuple[str, str]]:
    """Return (interface, address) pairs of this network namespace that can be bound, without link-local IPv6;
    on an error [].
    """
    from ddplaunch.agent.interfaces import read

    try:
        addresses = read.addresses()
    except OSError:
        return []
    return [(each.interface, each.address) for each in addresses if not (each.scope or each.unusable)]


def address_of(interface: str) -> Optional[str]:
    """Return the interface's first IPv4 address; None when it has none, or is absent."""
    matches = (address for name, address in interfaces() if name == interface and ":" not in address)
    return next(matches, None)
