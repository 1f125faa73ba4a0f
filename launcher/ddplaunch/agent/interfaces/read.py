"""Records this host's interfaces, or those of the process's network namespace. `predict` uses what it
finds.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import pwd
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ddplaunch.agent.interfaces import predict
from ddplaunch.agent.interfaces.predict import Address, HostFacts, Link
from ddplaunch.agent.system import resolve

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_GET_LINK, _GET_ADDR = 18, 22
_LINK_NAME, _LINK_MTU = 3, 4
_ADDR_ADDRESS, _ADDR_LOCAL, _ADDR_LABEL = 1, 2, 3
_DUPLICATE, _TENTATIVE = 0x08, 0x40
"""IFA_F_DADFAILED and IFA_F_TENTATIVE; an address stays tentative while its bridge has no port that is up."""
# linux/sockios.h, linux/ethtool.h: struct ethtool_cmd is 44 bytes, and needs no privileges
_IOCTL, _GET_SETTINGS, _SETTINGS = 0x8946, 1, "I8xH14xH14x"
_PATIENCE = 2.0
_FILE = 1 << 20  # bytes of NCCL's settings: a variable may say that their file is /dev/zero
_LOOPBACK = "127.0.0.1"


def host(environment: Mapping[str, str], release: predict.Version, patience: float = 5.0) -> HostFacts:
    """Return the facts for ranks with this environment. A name that gets no answer in time is unknown.

    Raises OSError if the kernel does not list its interfaces.
    """
    own = socket.gethostname()
    home = _home()
    result = HostFacts(addresses(), dict(environment), _files(environment, home, release), home, own)
    for name in {own, predict.comm_id_name(result, release)} - {""}:
        result.names[name] = _resolve(name, patience)
    with contextlib.suppress(OSError):
        named = predict.comm_id_interface(result, release)
        result.indexes[named] = socket.if_nametoindex(named)
    candidates = [*result.names.get(own, []), _LOOPBACK]
    result.bindable.extend(address for address in dict.fromkeys(candidates) if _can_bind(address))
    return result


def settings(environment: Mapping[str, str], release: predict.Version) -> dict[str, str]:
    """Return NCCL's variables for ranks with this environment: from the environment, or from NCCL's files."""
    home = _home()
    host_settings = HostFacts([], dict(environment), _files(environment, home, release), home)
    return {name: setting.value for name, setting in predict.nccl_settings(host_settings, release).items()}


def addresses() -> list[Address]:
    """Return all interfaces' addresses in the order of getifaddrs(3), with the same request. Raises
    OSError.
    """
    with _kernel() as kernel:
        links = {}
        for head, has in _dump(kernel, _GET_LINK, "HxxiI4x"):
            links[head[1]] = (_word(has[_LINK_NAME]), head[2])
        result = []
        for (family, prefix, state, _, index), has in _dump(kernel, _GET_ADDR, "BBBBI"):
            if family in (socket.AF_INET, socket.AF_INET6) and index in links:
                name, flags = links[index]
                address = socket.inet_ntop(family, has.get(_ADDR_LOCAL) or has[_ADDR_ADDRESS])
                label = _word(has.get(_ADDR_LABEL, b"")) or name
                unusable = family == socket.AF_INET6 and bool(state & (_DUPLICATE | _TENTATIVE))
                result.append(Address(label, address, prefix, flags, index, unusable))
        return result


def links() -> dict[str, Link]:
    """Return the links of this network namespace by interface name; /sys may show another one. Raises
    OSError.
    """
    with _kernel() as kernel:
        attributes = [has for _, has in _dump(kernel, _GET_LINK, "HxxiI4x")]
    mtus = {_word(has[_LINK_NAME]): struct.unpack("I", has[_LINK_MTU])[0] for has in attributes}
    return {name: Link(mtu, _speed(name)) for name, mtu in mtus.items()}


def _speed(interface: str) -> Optional[int]:
    settings = array.array("B", struct.pack(_SETTINGS, _GET_SETTINGS, 0, 0))
    request = struct.pack("16sP16x", interface.encode(), settings.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            fcntl.ioctl(probe, _IOCTL, request)
    except OSError:
        return None
    _, low, high = struct.unpack(_SETTINGS, settings)
    speed: int = high << 16 | low
    return speed if 0 < speed < 1 << 31 and speed != 0xFFFF else None  # else unknown, in one way or another


def _kernel() -> socket.socket:
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    kernel.settimeout(_PATIENCE)
    return kernel


def _dump(kernel: socket.socket, what: int, head: str) -> Iterator[tuple[Any, dict[int, bytes]]]:
    """Yield the head and the attributes of each message in the kernel's answer."""
    kernel.send(struct.pack("IHHII16x", 32, what, _REQUEST_DUMP, 0, 0))
    while True:
        data = kernel.recv(1 << 18)
        while data:
            size, kind = struct.unpack_from("IH", data)
            if kind in (_ERROR, _DONE):
                return
            body, start, has = data[16:size], struct.calcsize(head), {}
            while start < len(body):
                length, name = struct.unpack_from("HH", body, start)
                has[name] = body[start + 4 : start + length]
                start += (length + 3) & ~3
            yield struct.unpack_from(head, body), has
            data = data[(size + 3) & ~3 :]


def _word(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _files(environment: Mapping[str, str], home: str, release: predict.Version) -> dict[str, str]:
    return {path: _text(path) for path in predict.nccl_files(dict(environment), home, release)}


def _text(path: str) -> str:
    try:
        with open(path, "rb", opener=_at_once) as file:
            return (file.read(_FILE) or b"").decode(errors="replace")
    except OSError:
        return ""


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # NCCL would wait for a pipe, but this check must not


def _resolve(name: str, patience: float) -> list[str]:
    try:
        targets = resolve.socket_addresses(name, time.monotonic() + patience)
    except (resolve.UnknownNameError, resolve.UnansweredNameError):
        return []
    return [str(to[0]).partition("%")[0] + (f"%{to[3]}" if len(to) > 3 and to[3] else "") for to in targets]


def _can_bind(address: str) -> bool:
    plain, _, scope = address.partition("%")
    where = (plain, 0, 0, int(scope or 0)) if ":" in plain else (plain, 0)
    try:
        with socket.socket(socket.AF_INET6 if ":" in plain else socket.AF_INET) as probe:
            probe.bind(where)
            return True
    except OSError:
        return False
