"""NCCL's choice, since 2.18, after its sources. Pure.

Sources, of github.com/NVIDIA/nccl: src/misc/socket.cc (since 2.29 in part src/os/linux.cc), src/misc/utils.cc
for lists, src/misc/param.cc for files, src/bootstrap.cc and src/transport/net_socket.cc for the callers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple, Optional

from ddplaunch.agent.interfaces.facts import RUNNING, Address, Choice, HostFacts

Version = tuple[int, ...]

NEWEST: Version = (2, 32)
"""Assumed where the version is unknown."""
_MOST = 16
"""Interfaces, and entries of a list: MAX_IFS."""
_LONGEST = 63
"""Bytes of a host's name."""
_VALUE = 1023
"""Bytes of a value in NCCL's files."""
_FILE = "/etc/nccl.conf"

# The first version with each rule.
_OTHER_FILE: Version = (2, 23)  # NCCL_CONF_FILE
_REMARKS: Version = (2, 26)  # '#' in its files
_REFUSES: Version = (2, 27)  # data sockets, too, fail where NCCL_COMM_ID has no address
_ONLY_RUNNING: Version = (2, 28)  # only interfaces that run; virbr comes last
_BACKWARDS: Version = (2, 29)  # the test of an IPv4 subnet is inverted, until
_FORWARDS: Version = (2, 30)  # the right test; the user's file is in $HOME, not by the password database
_CUT: Version = (2, 30)  # a host name that is too long is cut; before, it overran its buffer


class Variable(NamedTuple):
    value: str
    source: str  # the file; "": the environment


def version(text: str) -> Version:
    """Return the version in '2.27.5' or '2.26.2.post1'; NEWEST for text that is none."""
    parts = text.split(".")[:3]
    return tuple(map(int, parts)) if len(parts) > 1 and all(map(str.isdigit, parts)) else NEWEST


def files(environment: dict[str, str], home: str, release: Version) -> list[str]:
    """Return the files that NCCL reads, the stronger first."""
    home = environment.get("HOME", "") if release >= _FORWARDS else home
    own = f"{home}/.nccl.conf" if home else ""
    if release >= _OTHER_FILE and environment.get("NCCL_CONF_FILE"):
        own = environment["NCCL_CONF_FILE"]
    return [own, _FILE] if own else [_FILE]


def settings(host: HostFacts, release: Version) -> dict[str, Variable]:
    """Return the variables of the environment and of the files; the first to set a variable wins."""
    result = {name: Variable(value, "") for name, value in host.environment.items()}
    for path in files(host.environment, host.home, release):
        for line in host.files.get(path, "").split("\n"):
            if release >= _FORWARDS and line.endswith("\r"):
                line = line[:-1]
            name, equals, value = line.partition("\0")[0].partition("=")
            if name and equals and not (release >= _REMARKS and line.startswith("#")):
                result.setdefault(name, Variable(value[:_VALUE], path))
    return result


def bootstrap(host: HostFacts, release: Version) -> Choice:
    """Return where this rank listens before there is a communicator; at most one address."""
    return _bootstrap(host, settings(host, release), release)


def sockets(host: HostFacts, release: Version) -> Choice:
    """Return the interfaces for data without RDMA device and plugin."""
    return _find(host, settings(host, release), release, _MOST)


def reached(host: HostFacts, release: Version, rdma: bool) -> Choice:
    """Return the addresses that peers must reach: the bootstrap's, and those for data over sockets.

    `rdma`: there are devices. Link-local addresses that a variable names are left out: they may not work.
    """
    given = settings(host, release)
    value = {name: each.value for name, each in given.items()}
    first, named = _bootstrap(host, given, release), value.get("NCCL_SOCKET_IFNAME", "")
    plugin = value.get("NCCL_NET_PLUGIN", "none") != "none"
    others = plugin or (rdma and value.get("NCCL_IB_DISABLE", "0") == "0")
    more = []
    if not others or value.get("NCCL_NET", "").lower() == "socket":
        every = _find(host, given, release, _MOST).addresses
        more = [each for each in every if each not in first.addresses and not (each.scope and named)]
    return Choice([*first.addresses, *more], first.why, not _short(named))


def comm_id_name(host: HostFacts, release: Version) -> str:
    """Return the name or IPv4 address in NCCL_COMM_ID that NCCL gives to getaddrinfo(3); else ""."""
    value = settings(host, release).get("NCCL_COMM_ID", Variable("", "")).value
    return "" if _short(value) or value.startswith("[") else _host_name(value, release)


def comm_id_interface(host: HostFacts, release: Version) -> str:
    """Return the interface in NCCL_COMM_ID's IPv6 address, as for if_nametoindex(3); may be ""."""
    value = settings(host, release).get("NCCL_COMM_ID", Variable("", "")).value
    return value.partition("]")[0].partition("%")[2] if value.startswith("[") else ""


def _bootstrap(host: HostFacts, given: dict[str, Variable], release: Version) -> Choice:
    return _by_id(host, given, release) if "NCCL_COMM_ID" in given else _find(host, given, release, 1)


def _find(host: HostFacts, given: dict[str, Variable], release: Version, most: int) -> Choice:
    wanted = given.get("NCCL_SOCKET_IFNAME", Variable("", ""))
    family = given.get("NCCL_SOCKET_FAMILY", Variable("", "")).value
    candidates = _Candidates(host.addresses, family, release, most)
    if not _short(wanted.value):
        where = f" ({wanted.source})" if wanted.source else ""
        setting = f"NCCL_SOCKET_IFNAME={wanted.value}{where}"
        taken = candidates.matching(wanted.value)
        return Choice(
            taken,
            f"{setting}: {_meaning(wanted.value, candidates.first)}" if taken else f"{setting} matches none",
        )
    ignored = f"NCCL_SOCKET_IFNAME={wanted.value} is too short to count; " if wanted.value else ""
    return _unset(host, given, candidates, ignored)


def _unset(host: HostFacts, given: dict[str, Variable], candidates: _Candidates, ignored: str) -> Choice:
    taken = candidates.matching("ib")
    if taken:
        return Choice(taken, f"{ignored}names that begin with ib go first")
    if not _short(given.get("NCCL_COMM_ID", Variable("", "")).value):
        choice = _by_id(host, given, candidates.release)
        refused = _target(given["NCCL_COMM_ID"].value, host, candidates.release) is None
        if choice.addresses or (refused and candidates.release >= _REFUSES):
            return choice
    last = ["docker", "lo", "virbr"] if candidates.release >= _ONLY_RUNNING else ["docker", "lo"]
    taken = candidates.matching("^" + ",".join(last))
    if taken:
        return Choice(taken, f"{ignored}{candidates.first} in the system's order, but for {', '.join(last)}")
    for prefix in last:
        taken = candidates.matching(prefix)
        if taken:
            return Choice(taken, f"{ignored}only this is left: {prefix}")
    runs = " that runs" if candidates.release >= _ONLY_RUNNING else ""
    return Choice([], f"{ignored}there is no interface{runs} with an address{candidates.of_family}")


class _Candidates(NamedTuple):
    addresses: list[Address]
    family: str  # NCCL_SOCKET_FAMILY; any other text means both
    release: Version
    most: int

    @property
    def first(self) -> str:
        return "the first" if self.most == 1 else f"the first {self.most}"

    @property
    def of_family(self) -> str:
        return f" of NCCL_SOCKET_FAMILY={self.family}" if self.family in ("AF_INET", "AF_INET6") else ""

    def matching(self, wanted: str) -> list[Address]:
        """Return the first address of each interface that `wanted` names, in the system's order."""
        taken: list[Address] = []
        for each in self.addresses:
            new = all(each.interface != other.interface for other in taken)
            if new and self._fits(each) and _names(wanted, each.interface):
                taken.append(each)
        return taken[: self.most]

    def _fits(self, each: Address) -> bool:
        if self.release >= _ONLY_RUNNING and not each.flags & RUNNING:
            return False
        if self.family in ("AF_INET", "AF_INET6") and each.ipv6 != (self.family == "AF_INET6"):
            return False
        return each.address != "::1"


def _names(wanted: str, interface: str) -> bool:
    unless, exact, entries = _parse(wanted)
    hit = not entries or any(
        interface == entry if exact else interface.startswith(entry) for entry in entries
    )
    return hit != unless


def _parse(wanted: str) -> tuple[bool, bool, list[str]]:
    """Return whether the list excludes ('^'), whether its names are exact ('='), and the names."""
    unless = wanted.startswith("^")
    rest = wanted[unless:]
    exact = rest.startswith("=")
    return unless, exact, _entries(rest[exact:])[:_MOST]


def _entries(text: str) -> list[str]:
    """Return the entries up to their colons, untrimmed."""
    return [name for name in (entry.partition(":")[0] for entry in text.split(",")) if name]


def _short(value: str) -> bool:
    """Whether the value has at most one byte: NCCL then treats it as not set."""
    return len(value.encode(errors="surrogateescape")) < 2


def _host_name(value: str, release: Version) -> str:
    name = (_entries(value) or [""])[0]
    if len(name.encode(errors="surrogateescape")) > _LONGEST:
        return name[:_LONGEST] if release >= _CUT else ""
    return name


def _meaning(wanted: str, first: str) -> str:
    unless, exact, entries = _parse(wanted)
    if not entries:
        return f"{first} of all"
    verb = ("is not" if unless else "is") if exact else "does not begin with" if unless else "begins with"
    return f"{first} in the system's order whose name {verb} {' or '.join(entries)}"


def _by_id(host: HostFacts, given: dict[str, Variable], release: Version) -> Choice:
    """Return the bootstrap's interface by the subnet of NCCL_COMM_ID, the only criterion."""
    value = given["NCCL_COMM_ID"].value
    target = _target(value, host, release)
    if target is None:
        return Choice([], f"NCCL_COMM_ID={value} gives no address")
    remote, scope = target
    backwards = _BACKWARDS <= release < _FORWARDS and ":" not in remote
    for each in _alike(host.addresses, remote):
        inside = ipaddress.ip_address(remote) in ipaddress.ip_network(each.network) and each.scope == scope
        if inside != backwards:
            why = f"the first {'outside' if backwards else 'in'} the subnet of NCCL_COMM_ID {remote}"
            return Choice([each], f"{why}, by a fault of NCCL 2.29" if backwards else why)
    return Choice([], f"no interface is in the subnet of NCCL_COMM_ID={value}")


def _alike(addresses: list[Address], remote: str) -> Iterator[Address]:
    return (each for each in addresses if each.ipv6 == (":" in remote))


def _target(value: str, host: HostFacts, release: Version) -> Optional[tuple[str, int]]:
    """Return address and scope of NCCL_COMM_ID; None when NCCL refuses it. Any text in brackets passes."""
    if not value.startswith("["):
        resolved = [] if _short(value) else host.names.get(_host_name(value, release), [])
        return (resolved[0].partition("%")[0], 0) if resolved else None
    inside, bracket, _ = value[1:].partition("]")
    address, _, interface = inside.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        address = "::"
    return (address, host.indexes.get(interface, 0)) if bracket else None
