"""What NCCL, Gloo and TensorPipe take on a host: interfaces and addresses, from the facts of `read`. Pure.

Tests describe any host by its facts alone, so nothing here may touch the system.

NCCL's rules, since 2.18, are those in github.com/NVIDIA/nccl: src/misc/socket.cc (since 2.29 partly
src/os/linux.cc), src/misc/utils.cc for lists, src/misc/param.cc for files, src/bootstrap.cc and
src/transport/net_socket.cc for the callers. Gloo's and TensorPipe's are those in gloo/transport/tcp/device.cc
of github.com/pytorch/gloo; in torch/csrc/distributed, c10d/init.cpp, c10d/ProcessGroupGloo.cpp and
rpc/tensorpipe_agent.cpp; and in tensorpipe/transport/uv/utility.cc.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

UP = 0x1  # net/if.h
RUNNING = 0x40


@dataclass(frozen=True)
class Address:
    """One entry of getifaddrs(3) with an IPv4 or IPv6 address."""

    interface: str  # for IPv4 its label, which may be an alias: eth0:1
    address: str  # without scope
    prefix: int  # bits
    flags: int  # of the interface, as in net/if.h
    index: int  # of the interface
    unusable: bool = False  # IPv6: another host has it, or the kernel does not know yet; it cannot be bound

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
    speed: Optional[int] = None  # Mbit/s; None if the kernel does not know it


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
    """The interfaces and addresses that a library takes on one host."""

    addresses: list[Address]  # in the library's order; none: the library fails
    why: str
    is_set: bool = False  # a variable or a file names interfaces, or excludes some

    def __str__(self) -> str:
        return ", ".join(map(str, self.addresses)) or "none"


Version = tuple[int, ...]

NEWEST: Version = (2, 32)
"""The version to assume if it is not known."""
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
_REFUSES: Version = (2, 27)  # data sockets also fail if NCCL_COMM_ID has no address
_ONLY_RUNNING: Version = (2, 28)  # only interfaces that are running; virbr comes last
_BACKWARDS: Version = (2, 29)  # the test of an IPv4 subnet is inverted, until
_FORWARDS: Version = (2, 30)  # the right test; the user's file is in $HOME, not by the password database
_CUT: Version = (2, 30)  # a host name that is too long is cut; earlier it overran its buffer


class Variable(NamedTuple):
    value: str
    source: str  # the file; "": the environment


def nccl_version(text: str) -> Version:
    """Return the version in '2.27.5' or '2.26.2.post1'; NEWEST for text that is no version."""
    parts = text.split(".")[:3]
    return tuple(map(int, parts)) if len(parts) > 1 and all(map(str.isdigit, parts)) else NEWEST


def nccl_files(environment: dict[str, str], home: str, release: Version) -> list[str]:
    """Return the files that NCCL reads, the one that wins first."""
    home = environment.get("HOME", "") if release >= _FORWARDS else home
    own = f"{home}/.nccl.conf" if home else ""
    if release >= _OTHER_FILE and environment.get("NCCL_CONF_FILE"):
        own = environment["NCCL_CONF_FILE"]
    return [own, _FILE] if own else [_FILE]


def nccl_settings(host: HostFacts, release: Version) -> dict[str, Variable]:
    """Return the variables in the environment and in the files. The first to set a variable wins."""
    result = {name: Variable(value, "") for name, value in host.environment.items()}
    for path in nccl_files(host.environment, host.home, release):
        for line in host.files.get(path, "").split("\n"):
            if release >= _FORWARDS and line.endswith("\r"):
                line = line[:-1]
            name, equals, value = line.partition("\0")[0].partition("=")
            if name and equals and not (release >= _REMARKS and line.startswith("#")):
                result.setdefault(name, Variable(value[:_VALUE], path))
    return result


def nccl_bootstrap(host: HostFacts, release: Version) -> Choice:
    """Return where this rank listens before there is a communicator; at most one address."""
    return _bootstrap(host, nccl_settings(host, release), release)


def nccl_sockets(host: HostFacts, release: Version) -> Choice:
    """Return the interfaces for data if there is neither an RDMA device nor a plugin."""
    return _find(host, nccl_settings(host, release), release, _MOST)


def nccl_reached(host: HostFacts, release: Version, rdma: bool) -> Choice:
    """Return the addresses that peers must reach: the bootstrap's, and those for data over sockets.

    `rdma`: there are devices. Link-local addresses that a variable names are left out, because they may not
    work.
    """
    given = nccl_settings(host, release)
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
    """Return the name or IPv4 address in NCCL_COMM_ID that NCCL passes to getaddrinfo(3); otherwise ""."""
    value = nccl_settings(host, release).get("NCCL_COMM_ID", Variable("", "")).value
    return "" if _short(value) or value.startswith("[") else _host_name(value, release)


def comm_id_interface(host: HostFacts, release: Version) -> str:
    """Return the interface in NCCL_COMM_ID's IPv6 address, as for if_nametoindex(3); may be ""."""
    value = nccl_settings(host, release).get("NCCL_COMM_ID", Variable("", "")).value
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
    """Whether the value has at most one byte. NCCL then treats it as not set."""
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
    """Return the bootstrap's interface from the subnet of NCCL_COMM_ID, which is the only criterion."""
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
    """Return address and scope of NCCL_COMM_ID; None if NCCL refuses it. Any text in brackets passes."""
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


_LOOPBACK = "127.0.0.1"
_NAME = 64
"""HOST_NAME_MAX of limits.h: torch's buffer is too short for such a name."""


def gloo(host: HostFacts) -> Choice:
    """Return an address for each entry of GLOO_SOCKET_IFNAME; without it, the address of the host's own
    name.
    """
    value = host.environment.get("GLOO_SOCKET_IFNAME", "")
    if len(value.encode(errors="surrogateescape")) < 2:
        ignored = f"GLOO_SOCKET_IFNAME={value} is too short to count; " if value else ""
        if len(host.name) >= _NAME:
            long = f"this host's name has {_NAME} letters, more than torch can hold"
            return Choice([], f"{ignored}{long}: set GLOO_SOCKET_IFNAME")
        return _by_name(host, ignored)
    addresses = []
    for name in value.removesuffix(",").split(","):
        each = _by_exact_name(host.addresses, name)
        if each is None:
            why = f"GLOO_SOCKET_IFNAME={value}: no interface is called {name!r} and has an address"
            return Choice([], why, is_set=True)
        addresses.append(each)
    return Choice(addresses, f"GLOO_SOCKET_IFNAME={value}: exact names", is_set=True)


def gloo_connects(own: str, peer: str) -> bool:
    """Whether a rank that listens at `own` may have to open the connection to one at `peer`.

    The rank with the higher address opens it, and need not be reachable itself. If the addresses are equal,
    the ports decide, and these are not known beforehand. If they are of two families, neither does: both give
    up.
    """
    here, there = ipaddress.ip_address(own), ipaddress.ip_address(peer)
    return here.version == there.version and here.packed >= there.packed


def tensorpipe(host: HostFacts) -> Choice:
    """Return the choice for RPC. If TensorPipe finds no address, it takes loopback, with a warning."""
    name = host.environment.get("TP_SOCKET_IFNAME")
    if name is None:
        return _by_name(host, "", of_any=True)
    running = [each for each in host.addresses if each.flags & UP and each.flags & RUNNING]
    address = _by_exact_name(running, name)
    if address is not None:
        return Choice([address], f"TP_SOCKET_IFNAME={name}: an exact name")
    return _loopback(host, f"TP_SOCKET_IFNAME={name}: no interface that runs is called so", of_any=True)


def _by_exact_name(addresses: list[Address], name: str) -> Optional[Address]:
    return next((each for each in addresses if each.interface == name), None)


def _by_name(host: HostFacts, ignored: str, of_any: bool = False) -> Choice:
    """Return the first address of the host's own name that can be bound; `of_any`: on any interface."""
    given = host.names.get(host.name, [])
    usable = [address for address in given if address in host.bindable]
    if usable:
        why = f"{ignored}the first address of this host's name, {host.name}, that can be bound"
        entry = _entry_of(host, usable[0], of_any)
        return Choice(
            [entry] if entry else [], why if entry else f"{why}: {usable[0]}, which no interface has"
        )
    lost = (
        f"{host.name} resolves to {', '.join(given)}, none of which can be bound"
        if given
        else (f"this host's name, {host.name}, does not resolve")
    )
    return _loopback(host, ignored + lost, of_any)


def _loopback(host: HostFacts, lost: str, of_any: bool) -> Choice:
    entry = _entry_of(host, _LOOPBACK, of_any) if _LOOPBACK in host.bindable else None
    return Choice([entry] if entry else [], f"{lost}: loopback is what is left")


def _entry_of(host: HostFacts, address: str, of_any: bool) -> Optional[Address]:
    """Return the entry that has the address. For an address in 127/8, any entry in it counts.

    If no interface was ever up, the kernel allows any address to be bound.
    """
    plain, _, scope = address.partition("%")
    for each in host.addresses:
        if each.address == plain and each.scope == int(scope or 0):
            return each
        if plain.startswith("127.") and each.address.startswith("127."):
            return Address(each.interface, plain, each.prefix, each.flags, each.index)
    return Address("-", plain, 0, 0, 0) if of_any else None
