"""NCCL's choice, since 2.18, after its sources. Pure.

Sources, of github.com/NVIDIA/nccl: src/misc/socket.cc (since 2.29 in part src/os/linux.cc), src/misc/utils.cc
for lists, src/misc/param.cc for files, src/bootstrap.cc and src/transport/net_socket.cc for who asks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple, Optional

from ddplaunch.agent.interfaces.facts import RUNNING, Address, Choice, Host

Version = tuple[int, ...]

NEWEST: Version = (2, 32)
"""Assumed where nobody knows the version."""
_MOST = 16
"""Interfaces, and entries of a list: MAX_IFS."""
_LONGEST = 63
"""Bytes of a host's name."""
_VALUE = 1023
"""Bytes of a value in its files."""
_FILE = "/etc/nccl.conf"

# When rules changed; a release has the rule from this version on.
_OTHER_FILE: Version = (2, 23)  # NCCL_CONF_FILE
_REMARKS: Version = (2, 26)  # '#' in its files
_REFUSES: Version = (2, 27)  # data, too, fails where NCCL_COMM_ID gives no address
_ONLY_RUNNING: Version = (2, 28)  # and virbr comes last
_BACKWARDS: Version = (2, 29)  # its test of an IPv4 subnet is the wrong way round, until
_FORWARDS: Version = (2, 30)  # and $HOME, not the password database, says where the user's file is
_CUT: Version = (2, 30)  # a host's name that is too long; before, it ran into what lies behind it


class Setting(NamedTuple):
    value: str
    source: str  # the file; empty: the environment


def version(text: str) -> Version:
    """Return the version in '2.27.5' or '2.26.2.post1'; NEWEST for text that is none."""
    parts = text.split(".")[:3]
    return tuple(map(int, parts)) if len(parts) > 1 and all(map(str.isdigit, parts)) else NEWEST


def files(environment: dict[str, str], home: str, release: Version) -> list[str]:
    """Return which files NCCL reads, the stronger first."""
    home = environment.get("HOME", "") if release >= _FORWARDS else home
    own = f"{home}/.nccl.conf" if home else ""
    if release >= _OTHER_FILE and environment.get("NCCL_CONF_FILE"):
        own = environment["NCCL_CONF_FILE"]
    return [own, _FILE] if own else [_FILE]


def settings(host: Host, release: Version) -> dict[str, Setting]:
    """The environment, and what the files add to it: whoever names a variable first wins."""
    found = {name: Setting(value, "") for name, value in host.environment.items()}
    for path in files(host.environment, host.home, release):
        for line in host.files.get(path, "").split("\n"):
            if release >= _FORWARDS and line.endswith("\r"):
                line = line[:-1]
            name, equals, value = line.partition("\0")[0].partition("=")
            if name and equals and not (release >= _REMARKS and line.startswith("#")):
                found.setdefault(name, Setting(value[:_VALUE], path))
    return found


def bootstrap(host: Host, release: Version) -> Choice:
    """Return where this rank listens for the others before any communicator is there; at most one address."""
    return _bootstrap(host, settings(host, release), release)


def sockets(host: Host, release: Version) -> Choice:
    """Return what carries the data where no RDMA device and no plugin does."""
    return _find(host, settings(host, release), release, _MOST)


def reached(host: Host, release: Version, rdma: bool) -> Choice:
    """Return what peers must reach: the bootstrap's address, and all that carry data where sockets do.

    `rdma`: there are devices. Of a link-local address that was asked for nobody can tell whether it works.
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


def comm_id_name(host: Host, release: Version) -> str:
    """The name or IPv4 address in NCCL_COMM_ID, which getaddrinfo(3) is asked for; empty where it is not."""
    value = settings(host, release).get("NCCL_COMM_ID", Setting("", "")).value
    return "" if _short(value) or value.startswith("[") else _host_name(value, release)


def comm_id_interface(host: Host, release: Version) -> str:
    """The one in an IPv6 address in NCCL_COMM_ID, which if_nametoindex(3) is asked for; may be empty."""
    value = settings(host, release).get("NCCL_COMM_ID", Setting("", "")).value
    return value.partition("]")[0].partition("%")[2] if value.startswith("[") else ""


def _bootstrap(host: Host, given: dict[str, Setting], release: Version) -> Choice:
    return _by_id(host, given, release) if "NCCL_COMM_ID" in given else _find(host, given, release, 1)


def _find(host: Host, given: dict[str, Setting], release: Version, most: int) -> Choice:
    wanted = given.get("NCCL_SOCKET_IFNAME", Setting("", ""))
    family = given.get("NCCL_SOCKET_FAMILY", Setting("", "")).value
    look = _Look(host.addresses, family, release, most)
    if not _short(wanted.value):
        where = f" ({wanted.source})" if wanted.source else ""
        said = f"NCCL_SOCKET_IFNAME={wanted.value}{where}"
        found = look.matching(wanted.value)
        return Choice(
            found, f"{said}: {_meaning(wanted.value, look.first)}" if found else f"{said} matches none"
        )
    ignored = f"NCCL_SOCKET_IFNAME={wanted.value} is too short to count; " if wanted.value else ""
    return _unset(host, given, look, ignored)


def _unset(host: Host, given: dict[str, Setting], look: _Look, ignored: str) -> Choice:
    found = look.matching("ib")
    if found:
        return Choice(found, f"{ignored}names that begin with ib go first")
    if not _short(given.get("NCCL_COMM_ID", Setting("", "")).value):
        choice = _by_id(host, given, look.release)
        refused = _target(given["NCCL_COMM_ID"].value, host, look.release) is None
        if choice.addresses or (refused and look.release >= _REFUSES):
            return choice
    last = ["docker", "lo", "virbr"] if look.release >= _ONLY_RUNNING else ["docker", "lo"]
    found = look.matching("^" + ",".join(last))
    if found:
        return Choice(found, f"{ignored}{look.first} in the system's order, but for {', '.join(last)}")
    for prefix in last:
        found = look.matching(prefix)
        if found:
            return Choice(found, f"{ignored}nothing better is left than {prefix}")
    runs = " that runs" if look.release >= _ONLY_RUNNING else ""
    return Choice([], f"{ignored}there is no interface{runs} with an address{look.of_family}")


class _Look(NamedTuple):
    addresses: list[Address]
    family: str  # NCCL_SOCKET_FAMILY; whatever else it is means both
    release: Version
    most: int

    @property
    def first(self) -> str:
        return "the first" if self.most == 1 else f"the first {self.most}"

    @property
    def of_family(self) -> str:
        return f" of NCCL_SOCKET_FAMILY={self.family}" if self.family in ("AF_INET", "AF_INET6") else ""

    def matching(self, wanted: str) -> list[Address]:
        """The first address of each interface that `wanted` names, in the system's order."""
        found: list[Address] = []
        for each in self.addresses:
            new = all(each.interface != other.interface for other in found)
            if new and self._fits(each) and _names(wanted, each.interface):
                found.append(each)
        return found[: self.most]

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
    """Whether it excludes, whether names are whole, and the names: '^' and '=' hold for all of them."""
    unless = wanted.startswith("^")
    rest = wanted[unless:]
    exact = rest.startswith("=")
    return unless, exact, _entries(rest[exact:])[:_MOST]


def _entries(text: str) -> list[str]:
    """Return the entries: what stands before a colon counts; nothing is trimmed."""
    return [name for name in (entry.partition(":")[0] for entry in text.split(",")) if name]


def _short(value: str) -> bool:
    """Whether NCCL treats the value as not set: it has one byte at most."""
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


def _by_id(host: Host, given: dict[str, Setting], release: Version) -> Choice:
    """The bootstrap of a job with NCCL_COMM_ID goes by its subnet; nothing else is asked."""
    value = given["NCCL_COMM_ID"].value
    target = _target(value, host, release)
    if target is None:
        return Choice([], f"NCCL_COMM_ID={value} gives no address")
    remote, scope = target
    backwards = _BACKWARDS <= release < _FORWARDS and ":" not in remote
    for each in _alike(host.addresses, remote):
        inside = ipaddress.ip_address(remote) in ipaddress.ip_network(each.network) and each.scope == scope
        if inside != backwards:
            said = f"the first {'outside' if backwards else 'in'} the subnet of NCCL_COMM_ID {remote}"
            return Choice([each], f"{said}, by a fault of NCCL 2.29" if backwards else said)
    return Choice([], f"no interface is in the subnet of NCCL_COMM_ID={value}")


def _alike(addresses: list[Address], remote: str) -> Iterator[Address]:
    return (each for each in addresses if each.ipv6 == (":" in remote))


def _target(value: str, host: Host, release: Version) -> Optional[tuple[str, int]]:
    """Address and scope; None when NCCL refuses it. What stands in brackets it does not judge."""
    if not value.startswith("["):
        found = [] if _short(value) else host.names.get(_host_name(value, release), [])
        return (found[0].partition("%")[0], 0) if found else None
    inside, bracket, _ = value[1:].partition("]")
    address, _, interface = inside.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        address = "::"
    return (address, host.indexes.get(interface, 0)) if bracket else None
