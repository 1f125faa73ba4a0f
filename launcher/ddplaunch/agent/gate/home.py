"""Where this node is, so that the hub can tell which nodes share a machine, and which a loopback device."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import Optional

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def machine() -> str:
    """The kernel's boot id: the same for all containers of a machine. Host name where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def network() -> str:
    """The network namespace. Empty where the kernel does not tell."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def address_of(interface: str) -> Optional[str]:
    """Its first IPv4 address; None when it has none, or is not there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
