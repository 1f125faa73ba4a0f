"""Gloo's and TensorPipe's choice, as torch calls them. Pure.

Sources: gloo/transport/tcp/device.cc of github.com/pytorch/gloo; of torch/csrc/distributed,
c10d/init.cpp, c10d/ProcessGroupGloo.cpp and rpc/tensorpipe_agent.cpp; tensorpipe/transport/uv/utility.cc.
"""

from __future__ import annotations

import ipaddress
from typing import Optional

from ddplaunch.agent.interfaces.facts import RUNNING, UP, Address, Choice, Host

_LOOPBACK = "127.0.0.1"
_NAME = 64
"""HOST_NAME_MAX of limits.h: torch keeps no room for the end of such a name."""


def gloo(host: Host) -> Choice:
    """One address for each entry of GLOO_SOCKET_IFNAME, used in turn; else that of the host's own name."""
    value = host.environment.get("GLOO_SOCKET_IFNAME", "")
    if len(value.encode(errors="surrogateescape")) < 2:
        ignored = f"GLOO_SOCKET_IFNAME={value} is too short to count; " if value else ""
        if len(host.name) >= _NAME:
            long = f"this host's name has {_NAME} letters, more than torch can hold"
            return Choice([], f"{ignored}{long}: set GLOO_SOCKET_IFNAME")
        return _by_name(host, ignored)
    found = []
    for name in value.removesuffix(",").split(","):
        each = _exactly(host.addresses, name)
        if each is None:
            why = f"GLOO_SOCKET_IFNAME={value}: no interface is called {name!r} and has an address"
            return Choice([], why, told=True)
        found.append(each)
    return Choice(found, f"GLOO_SOCKET_IFNAME={value}: exact names", told=True)


def connects(own: str, peer: str) -> bool:
    """Whether of two ranks the one that listens at `own` may be the one to open their connection.

    The higher address does, and nobody ever needs to reach it. Of equal ones the ports decide, which are not
    known beforehand. Of two families none does: both give up.
    """
    here, there = ipaddress.ip_address(own), ipaddress.ip_address(peer)
    return here.version == there.version and here.packed >= there.packed


def tensorpipe(host: Host) -> Choice:
    """Return the choice for RPC; where TensorPipe finds nothing it takes loopback, with a mere warning."""
    name = host.environment.get("TP_SOCKET_IFNAME")
    if name is None:
        return _by_name(host, "", anybodys=True)
    running = [each for each in host.addresses if each.flags & UP and each.flags & RUNNING]
    found = _exactly(running, name)
    if found is not None:
        return Choice([found], f"TP_SOCKET_IFNAME={name}: an exact name")
    return _loopback(host, f"TP_SOCKET_IFNAME={name}: no interface that runs is called so", anybodys=True)


def _exactly(addresses: list[Address], name: str) -> Optional[Address]:
    return next((each for each in addresses if each.interface == name), None)


def _by_name(host: Host, ignored: str, anybodys: bool = False) -> Choice:
    """The first address of the host's own name that can be bound; `anybodys`: by whatever interface."""
    given = host.names.get(host.name, [])
    usable = [address for address in given if address in host.bindable]
    if usable:
        why = f"{ignored}the first address of this host's name, {host.name}, that can be bound"
        holder = _holder(host, usable[0], anybodys)
        return Choice([holder] if holder else [], why if holder else f"{why}: {usable[0]}, which nobody has")
    lost = (
        f"{host.name} resolves to {', '.join(given)}, none of which can be bound"
        if given
        else (f"this host's name, {host.name}, does not resolve")
    )
    return _loopback(host, ignored + lost, anybodys)


def _loopback(host: Host, lost: str, anybodys: bool) -> Choice:
    holder = _holder(host, _LOOPBACK, anybodys) if _LOOPBACK in host.bindable else None
    return Choice([holder] if holder else [], f"{lost}: loopback is what is left")


def _holder(host: Host, address: str, anybodys: bool) -> Optional[Address]:
    """Return which entry the library takes an address for. Of 127/8 any one will do; the address is kept.

    Where no interface was ever up, the kernel lets anybody bind any address.
    """
    plain, _, scope = address.partition("%")
    for each in host.addresses:
        if each.address == plain and each.scope == int(scope or 0):
            return each
        if plain.startswith("127.") and each.address.startswith("127."):
            return Address(each.interface, plain, each.prefix, each.flags, each.index)
    return Address("-", plain, 0, 0, 0) if anybodys else None
