"""Finds free ports of this machine, and listens on them."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from typing import Optional

_LOWEST, _HIGHEST = 10000, 32767
"""Above the usual ports of services, and below those that Linux gives to outgoing connections by default."""
EPHEMERAL = (32768, 60999)
"""Ports that Linux gives to outgoing connections by default."""
_TRIES = 200


def listen(host: Optional[str], port: int) -> socket.socket:
    """Return a listening socket, bound as the trainer's store is. None: all addresses, both families.

    With SO_REUSEADDR, connections in TIME_WAIT do not hold the port, but a listener does. Raises OSError.
    """
    if host is None and socket.has_dualstack_ipv6():
        try:
            return _listen(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    return _listen(family, host or "0.0.0.0", port)


def _listen(family: int, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def first_free(host: Optional[str], job: str, attempt: int, key: bytes, purpose: str) -> socket.socket:
    """Listen on the first free port of the job's own sequence. Raises OSError if none is free."""
    failure = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    for port in sequence(f"{job} {attempt} {purpose}".encode() + key, ephemeral_range()):
        try:
            return listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            failure = error
    raise failure


def sequence(seed: bytes, avoid: tuple[int, int]) -> list[int]:
    """Return the ports to try, the same for the same seed; none inside `avoid` (inclusive), unless all are.

    On large machines the range for outgoing connections often covers all ports, and a job must start there,
    too.
    """
    digests = (hashlib.sha256(b"%s %d" % (seed, index)).digest() for index in range(_TRIES))
    tried = [_LOWEST + int.from_bytes(each[:4], "big") % (_HIGHEST - _LOWEST + 1) for each in digests]
    return [port for port in tried if not avoid[0] <= port <= avoid[1]] or tried


def ephemeral_range() -> tuple[int, int]:
    """Return the first and the last port that the kernel takes for outgoing connections."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = file.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return EPHEMERAL


def is_reserved(port: int) -> bool:
    """Whether the administrator has reserved the port, so that outgoing connections do not get it."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_reserved_ports", encoding="ascii") as file:
            ranges = [entry.partition("-") for entry in file.read().strip().split(",") if entry]
        return any(int(low) <= port <= int(high or low) for low, _, high in ranges)
    except (OSError, ValueError):
        return False


def number(listener: socket.socket) -> int:
    """Return the port on which the socket listens."""
    return int(listener.getsockname()[1])
