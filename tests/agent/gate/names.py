"""A name server for hosts: NXDOMAIN for all names, until it is told their addresses. `python names.py FILE`.

FILE has lines of ADDRESS NAME, read anew for each question, and answers of type A alone.
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

_A = 1
_HEADER = struct.Struct(">HHHHHH")
_NXDOMAIN = 0x8583
_FOUND = 0x8580


def answer(packet: bytes, known: dict[str, str]) -> bytes:
    """To one question (RFC 1035)."""
    end, labels = 12, []
    while packet[end]:
        labels.append(packet[end + 1 : end + 1 + packet[end]].decode())
        end += 1 + packet[end]
    question = packet[12 : end + 5]
    (kind,) = struct.unpack(">H", question[-4:-2])
    address = known.get(".".join(labels))
    found = [address] if address and kind == _A else []
    number = int.from_bytes(packet[:2], "big")
    head = _HEADER.pack(number, _FOUND if address else _NXDOMAIN, 1, len(found), 0, 0)
    records = [struct.pack(">HHHIH", 0xC00C, _A, 1, 1, 4) + socket.inet_aton(each) for each in found]
    return head + question + b"".join(records)


def main() -> None:
    """Serve for ever, saying so once."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("", 53))
    print("listening", flush=True)
    while True:
        packet, client = listener.recvfrom(4096)
        lines = [line.split() for line in Path(sys.argv[1]).read_text().splitlines()]
        listener.sendto(answer(packet, {name: address for address, name in lines}), client)


if __name__ == "__main__":
    main()
