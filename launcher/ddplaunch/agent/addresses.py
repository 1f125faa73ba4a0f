"""Where something listens, as nodes tell one another; and this machine's own addresses."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.resolve import is_loopback

_SIOCGIFCONF = 0x8912  # linux/sockios.h
_SIOCGIFADDR = 0x8915
_ENTRY = 40  # bytes of struct ifreq on a 64-bit system
_GLOBAL = "00"  # scope in /proc/net/if_inet6


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> list[Address]:
    """Of 'n1:29400,10.0.0.5:29400,[fd00::5]:29400'. Raises ValueError."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(part)
        found.append(Address(host.strip("[]"), int(port)))
    return found


def spell(addresses: Sequence[Address]) -> str:
    """What `parse` reads."""
    return ",".join(map(str, addresses))


def own() -> list[str]:
    """Of all interfaces that are up, in the kernel's order, IPv4 first; neither loopback nor link-local."""
    found = [address for _, address in interfaces()]
    return [each for each in found if not is_loopback(each) and not each.startswith("169.254.")]


def interfaces() -> list[tuple[str, str]]:
    """(interface, address) of this network namespace; of IPv6 those of global scope."""
    return _ipv4() + _ipv6()


def address_of(interface: str) -> Optional[str]:
    """Its first IPv4 address; None when it has none, or is not there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv4() -> list[tuple[str, str]]:
    size = 256 * _ENTRY
    while True:
        data = array.array("B", bytes(size))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iP", size, data.buffer_info()[0]))
            except OSError:
                return []
        used = struct.unpack("iP", answer)[0]
        if used < size:  # else there may be more
            break
        size *= 2
    entries = (data[start : start + _ENTRY].tobytes() for start in range(0, used, _ENTRY))
    return [(e[:16].split(b"\0", 1)[0].decode(), socket.inet_ntoa(e[20:24])) for e in entries]


def _ipv6() -> list[tuple[str, str]]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [
        (row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])))
        for row in rows
        if row[3] == _GLOBAL
    ]
