"""Hosts on paper, for the tests of what is predicted."""

from __future__ import annotations

from typing import Any

from ddplaunch.agent.interfaces.predict import RUNNING, UP, Address, HostFacts


def address(interface: str, text: str, down: bool = False) -> Address:
    """'10.0.0.5/24' on an interface that runs, or has no carrier."""
    plain, _, prefix = text.partition("/")
    name = interface.partition(":")[0]
    flags = UP if down else UP | RUNNING
    return Address(interface, plain, int(prefix or 24), flags, 1 + sum(map(ord, name)))


def host(*addresses: Address, **more: Any) -> HostFacts:
    """With loopback before, and settings as keyword arguments in capitals."""
    environment = {name: value for name, value in more.items() if name.isupper()}
    others = {name: value for name, value in more.items() if not name.isupper()}
    return HostFacts([address("lo", "127.0.0.1/8"), *addresses], environment, **others)


LO6 = address("lo", "::1/128")
ETH = address("eth0", "10.0.0.5/24")
ALIAS = address("eth0:1", "10.0.1.5/24")
ETH6 = address("eth0", "fd00::5/64")
LOCAL6 = address("eth0", "fe80::5/64")
ENP = address("enp94s0np0", "10.0.2.5/24")
IB = address("ib0", "10.1.0.5/24")
DOCKER = address("docker0", "172.17.0.1/16")
IDLE = address("docker0", "172.17.0.1/16", down=True)
VIRBR = address("virbr0", "192.168.122.1/24")
