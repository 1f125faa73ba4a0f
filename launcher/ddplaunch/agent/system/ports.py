"""Ports of this machine that are free, listeners on them, and the sockets that there are, with their bytes.

The sockets are read from /proc/net, their bytes from the kernel by NETLINK_SOCK_DIAG: /proc/PID/io counts
bytes of write() but not of recv(), with which collectives and downloads read. Layouts: linux/inet_diag.h and
linux/tcp.h.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
from typing import NamedTuple, Optional

from ddplaunch.agent.system.resolve import plain_address

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


# --- the sockets of this network namespace

SYN_SENT, LISTEN = "02", "0A"
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_DONE, _ERROR = 3, 2
_INFO = 2  # INET_DIAG_INFO
_ESTABLISHED_AND_CLOSING = 0b1111_1011_0010
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_INODE_OFFSET = 68  # of inet_diag_msg
_MESSAGE_SIZE = 72
_ATTRIBUTE = struct.Struct("=HH")
_IDLE = struct.Struct("=I4xI")
_IDLE_OFFSET = 44  # tcpi_last_data_sent, tcpi_last_ack_sent, tcpi_last_data_recv: milliseconds
_BYTES = struct.Struct("=QQ")
_BYTES_OFFSET = 120  # tcpi_bytes_acked, tcpi_bytes_received; kernels before 4.1 end earlier
_PIECES = struct.Struct("=II")
_PIECES_OFFSET = 152  # tcpi_data_segs_in, tcpi_data_segs_out
_WAIT = 1.0
"""Seconds for the kernel's answer, which takes about 10 ms for 10,000 sockets."""


class Tcp(NamedTuple):
    """A line of /proc/net/tcp or tcp6."""

    state: str
    local: str  # in the form of /proc/net, like `remote`; see `address`
    remote: str
    unconfirmed: bool  # data was resent, and is not acknowledged yet
    user_id: int
    inode: int

    @property
    def port(self) -> int:
        return int(self.local.rpartition(":")[2], 16)

    @property
    def remote_port(self) -> int:
        return int(self.remote.rpartition(":")[2], 16)


class Traffic(NamedTuple):
    """The traffic of one socket."""

    moved: int = 0  # bytes acknowledged by the peer, plus those received
    idle: float = 0.0  # seconds since it last sent or received data
    unsent: float = 0.0  # seconds since it last sent data
    pieces: int = 0  # segments with data, in both directions; 0 on kernels before 4.6


def table() -> list[Tcp]:
    """Return all TCP sockets, IPv4 first."""
    sockets = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as file:
                rows = [line.split() for line in file.read().splitlines()[1:]]
        except OSError:
            continue
        for row in rows:
            again = bool(int(row[6], 16) and int(row[4].partition(":")[0], 16))
            sockets.append(Tcp(row[3], row[1], row[2], again, int(row[7]), int(row[9])))
    return sockets


def address(text: str) -> str:
    """Return the address in text of /proc/net: words of 32 bits in the machine's order, then a port."""
    text = text.partition(":")[0]
    data = b"".join(struct.pack("=I", int(text[at : at + 8], 16)) for at in range(0, len(text), 8))
    return plain_address(socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data))


def traffic_by_inode() -> dict[int, Traffic]:
    """Return what each socket has moved. Raises OSError."""
    counts: dict[int, Traffic] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as connection:
        connection.settimeout(_WAIT)
        for family in (socket.AF_INET, socket.AF_INET6):
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED_AND_CLOSING)
            size = _HEADER.size + len(body)
            connection.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, family, 0) + body)
            while _take(connection.recv(1 << 18), counts):
                pass
    return counts


def _take(data: bytes, counts: dict[int, Traffic]) -> bool:
    """Read one datagram of the answer into `counts`. Returns whether more will follow. Raises OSError."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, kind = _HEADER.unpack_from(data, offset)[:2]
        if kind == _ERROR:
            (number,) = struct.unpack_from("=i", data, offset + _HEADER.size)
            raise OSError(-number, "the kernel does not list sockets")
        if kind == _DONE or size < _HEADER.size:
            return False
        body = data[offset + _HEADER.size : offset + size]
        (inode,) = struct.unpack_from("=I", body, _INODE_OFFSET)
        counts[inode] = _traffic(body[_MESSAGE_SIZE:])
        offset += (size + 3) & ~3
    return True


def _traffic(attributes: bytes) -> Traffic:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, offset)
        if kind == _INFO and size >= _ATTRIBUTE.size + _BYTES_OFFSET + _BYTES.size:
            info = offset + _ATTRIBUTE.size
            acknowledged, received = _BYTES.unpack_from(attributes, info + _BYTES_OFFSET)
            sent_at, got_at = _IDLE.unpack_from(attributes, info + _IDLE_OFFSET)
            pieces = 0
            if size >= _ATTRIBUTE.size + _PIECES_OFFSET + _PIECES.size:
                pieces = sum(_PIECES.unpack_from(attributes, info + _PIECES_OFFSET))
            moved = acknowledged + received
            return Traffic(moved, min(sent_at, got_at) / 1000, sent_at / 1000, pieces)
        offset += max((size + 3) & ~3, _ATTRIBUTE.size)
    return Traffic()
