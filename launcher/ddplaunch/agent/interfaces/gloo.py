"""Gloo's and TensorPipe's choice, as torch calls them. Pure.

Sources: gloo/transport/tcp/device.cc of github.com/pytorch/gloo; of torch/csrc/distributed,
c10d/init.cpp, c10d/ProcessGroupGloo.cpp and rpc/tensorpipe_agent.cpp; tensorpipe/transport/uv/utility.cc.
"""

from __future__ import annotations

import ipaddress
from typing import Optional

from ddplaunch.agent.interfaces.facts import RUNNING, UP, Address, Choice, HostFacts

_LOOPBACK = "127.0.0.1"
_NAME = 64
"""HOST_NAME_MAX of limits.h: torch's buffer is too short for such a name."""


def gloo(host: HostFacts) -> Choice:
    """Return an address for each entry of GLOO_SOCKET_IFNAME; without it, that of the host's own name."""
    value = host.environment.get("GLOO_SOCKET_IFNAME", "")
    if len(value.encode(errors="surrogateescape")) < 2:
        ignored = f"GLOO_SOCKET_IFNAME={value} is too short to count; " if value else ""
        if len(host.name) >= _NAME:
            long = f"this host's name has {_NAME} letters, more than torch can hold"
            return Choice([], f"{ignored}{long}: set GLOO_SOCKET_IFNAME")
        return _by_name(host, ignored)
    addresses = []
    for name in value.removesuffix(",").split(","):
        each = _exactly(host.addresses, name)
        if each is None:
            why = f"GLOO_SOCKET_IFNAME={value}: no interface is called {name!r} and has an address"
            return Choice([], why, is_set=True)
        addresses.append(each)
    return Choice(addresses, f"GLOO_SOCKET_IFNAME={value}: exact names", is_set=True)


def connects(own: str, peer: str) -> bool:
    """Whether a rank that listens at `own` may have to open the connection to one at `peer`.

    The rank with the higher address does, and need not be reachable itself. Between equal addresses the ports
    decide, which are unknown beforehand. Between two families none does: both give up.
    """
    here, there = ipaddress.ip_address(own), ipaddress.ip_address(peer)
    return here.version == there.version and here.packed >= there.packed


def tensorpipe(host: HostFacts) -> Choice:
    """Return the choice for RPC; where TensorPipe finds no address it takes loopback, with a warning."""
    name = host.environment.get("TP_SOCKET_IFNAME")
    if name is None:
        return _by_name(host, "", any_holder=True)
    running = [each for each in host.addresses if each.flags & UP and each.flags & RUNNING]
    address = _exactly(running, name)
    if address is not None:
        return Choice([address], f"TP_SOCKET_IFNAME={name}: an exact name")
    return _loopback(host, f"TP_SOCKET_IFNAME={name}: no interface that runs is called so", any_holder=True)


def _exactly(addresses: list[Address], name: str) -> Optional[Address]:
    return next((each for each in addresses if each.interface == name), None)


def _by_name(host: HostFacts, ignored: str, any_holder: bool = False) -> Choice:
    """Return the first address of the host's own name that can be bound; `any_holder`: of any interface."""
    given = host.names.get(host.name, [])
    usable = [address for address in given if address in host.bindable]
    if usable:
        why = f"{ignored}the first address of this host's name, {host.name}, that can be bound"
        holder = _holder(host, usable[0], any_holder)
        return Choice(
            [holder] if holder else [], why if holder else f"{why}: {usable[0]}, which no interface has"
        )
    lost = (
        f"{host.name} resolves to {', '.join(given)}, none of which can be bound"
        if given
        else (f"this host's name, {host.name}, does not resolve")
    )
    return _loopback(host, ignored + lost, any_holder)


def _loopback(host: HostFacts, lost: str, any_holder: bool) -> Choice:
    holder = _holder(host, _LOOPBACK, any_holder) if _LOOPBACK in host.bindable else None
    return Choice([holder] if holder else [], f"{lost}: loopback is what is left")


def _holder(host: HostFacts, address: str, any_holder: bool) -> Optional[Address]:
    """Return the entry that has the address. For an address in 127/8 any such entry counts.

    Where no interface was ever up, the kernel allows any address to be bound.
    """
    plain, _, scope = address.partition("%")
    for each in host.addresses:
        if each.address == plain and each.scope == int(scope or 0):
            return each
        if plain.startswith("127.") and each.address.startswith("127."):
            return Address(each.interface, plain, each.prefix, each.flags, each.index)
    return Address("-", plain, 0, 0, 0) if any_holder else None
