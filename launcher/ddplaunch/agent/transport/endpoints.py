"""Addresses at which a process listens, as nodes tell each other; and the addresses of this machine."""

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
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(part)
        found.append(Endpoint(host.strip("[]"), int(port)))
    return found


def spell(addresses: Sequence[Endpoint]) -> str:
    """Return what `parse` reads."""
    return ",".join(map(str, addresses))


def own() -> list[str]:
    """Return the addresses of all interfaces that are up, IPv4 first; no loopback, no link-local ones."""
    found = [address for _, address in interfaces()]
    return [each for each in found if not is_loopback(each) and not each.startswith("169.254.")]


def interfaces() -> list[tuple[str, str]]:
    """(interface, address) of this network namespace, but for link-local IPv6; empty where it cannot tell."""
    from ddplaunch.agent.interfaces import read

    try:
        found = read.addresses()
    except OSError:
        return []
    return [(each.interface, each.address) for each in found if not each.scope]


def address_of(interface: str) -> Optional[str]:
    """Return the interface's first IPv4 address; None when it has none, or is absent."""
    found = (address for name, address in interfaces() if name == interface and ":" not in address)
    return next(found, None)
