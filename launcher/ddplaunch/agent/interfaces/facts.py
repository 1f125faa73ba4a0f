"""The facts that the choice of an interface depends on. `read` records them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Optional

UP = 0x1  # net/if.h
RUNNING = 0x40


@dataclass(frozen=True)
class Address:
    """One entry of getifaddrs(3) with an IPv4 or IPv6 address."""

    interface: str  # of IPv4 its label, which may be an alias: eth0:1
    address: str  # without scope
    prefix: int  # bits
    flags: int  # of the interface, as in net/if.h
    index: int  # of the interface

    @property
    def ipv6(self) -> bool:
        return ":" in self.address

    @property
    def scope(self) -> int:
        """Return sin6_scope_id: the interface's index for a link-local IPv6 address, else 0."""
        return self.index if self.ipv6 and ipaddress.ip_address(self.address).is_link_local else 0

    @property
    def network(self) -> str:
        """Return the address's network: '10.0.0.0/24'."""
        return str(ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False))

    def __str__(self) -> str:
        return f"{self.interface} {self.address}"


@dataclass(frozen=True)
class Link:
    """Capabilities of an interface."""

    mtu: int  # bytes
    speed: Optional[int] = None  # Mbit/s; None where the kernel does not know


@dataclass(frozen=True)
class HostFacts:
    """One host, as the ranks on it will see it."""

    addresses: list[Address]  # in the order of getifaddrs
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # NCCL's own settings: text by path
    home: str = ""  # the user's folder, by the password database
    name: str = ""  # gethostname(2)
    names: dict[str, list[str]] = field(default_factory=dict)  # getaddrinfo(3), in its order; "fe80::1%2"
    indexes: dict[str, int] = field(default_factory=dict)  # if_nametoindex(3), which knows aliases as well
    bindable: list[str] = field(default_factory=list)  # those of `names` to which a socket can be bound


@dataclass(frozen=True)
class Choice:
    """Interfaces and addresses that a library takes on one host."""

    addresses: list[Address]  # in the library's order; none: the library fails
    why: str
    is_set: bool = False  # a variable or a file names interfaces, or excludes some

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses)) or "none"
