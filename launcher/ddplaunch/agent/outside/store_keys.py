"""Reads keys of torch's TCPStore, as a client that only looks.

The protocol is that of torch's torch/csrc/distributed/c10d/TCPStoreBackend.hpp: a client gives a magic number
first; a query is a byte, then its arguments; lengths are 64-bit numbers in the machine's byte order.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

_VALIDATE, _GET, _CHECK = 0, 3, 5
_MAGIC = 0x3C85F7CE
_READY = 0
_LONGEST = 4096
"""Bytes of a value that is believed: whatever listens there may be no store."""


def read(address: str, port: int, keys: Iterable[str], until: float) -> dict[str, str]:
    """Return those of the keys that are there, by `until` (time.monotonic()); none where no store answers."""
    values = {}
    try:
        with socket.create_connection((address, port), _left(until)) as link:
            link.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))
            for key in keys:
                link.settimeout(_left(until))
                # A key that is not there would be waited for.
                link.sendall(struct.pack("=BQ", _CHECK, 1) + _text(key))
                if _exactly(link, 1)[0] != _READY:
                    continue
                link.sendall(struct.pack("=B", _GET) + _text(key))
                (length,) = struct.unpack("=Q", _exactly(link, 8))
                if length > _LONGEST:
                    break
                values[key] = _exactly(link, length).decode(errors="replace")
    except OSError:
        pass
    return values


def _left(until: float) -> float:
    return max(0.01, until - time.monotonic())


def _text(key: str) -> bytes:
    data = f"/{key}".encode()  # as torch's client stores each key
    return struct.pack("=Q", len(data)) + data


def _exactly(link: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = link.recv(length - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data
