"""Opens a connection, and tells a refusal by a firewall from one by the host."""

from __future__ import annotations

import contextlib
import socket

_REPORT_ERRORS: dict[int, tuple[int, int]] = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
"""IP_RECVERR of linux/in.h and IPV6_RECVERR of linux/in6.h, for which Python has no names."""
_ORIGIN = 4
_ICMP = (2, 3)
"""Where a sock_extended_err has its origin, and the origins that are ICMP: linux/errqueue.h."""


class RejectedError(ConnectionRefusedError):
    """An ICMP message refuses the connection. A host refuses by TCP, so it is a firewall's."""


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """Return a socket connected to a numeric address. Raises OSError.

    Before Linux 5.8, whose kernel does not tell who refused, RejectedError is never raised.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        _report_errors(connection, True)
        connection.connect((address, port))
        _report_errors(connection, False)  # a later ICMP message would end the connection
    except OSError as error:
        rejected = isinstance(error, ConnectionRefusedError) and _is_by_icmp(connection)
        connection.close()
        if rejected:
            raise RejectedError(*error.args) from error
        raise
    return connection


def _report_errors(connection: socket.socket, wanted: bool) -> None:
    with contextlib.suppress(OSError):  # not every sandbox has these options
        connection.setsockopt(*_REPORT_ERRORS[connection.family], wanted)


def _is_by_icmp(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        _, errors, _, _ = connection.recvmsg(1, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return False
    return any(data[_ORIGIN] in _ICMP for _, _, data in errors)
