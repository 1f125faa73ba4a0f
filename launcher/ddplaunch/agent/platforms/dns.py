"""Asks the name server itself, past /etc/hosts and libc: only its answer says why a name is missing.

DNS over UDP (RFC 1035), for one name and its addresses. getaddrinfo always finds a pod's own name, which is
in the pod's /etc/hosts, even if the job's Service is wrong.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from typing import NamedTuple, Optional

from ddplaunch.agent.platforms.places import RESOLV_CONF

RESOLVED, NO_NAME, NO_ADDRESS, FAILING, SILENT = "found", "no such name", "no address", "failing", "silent"
_TRY = 1.0
"""Seconds before the request is sent again, because UDP packets get lost."""
_A, _AAAA = 1, 28
_NXDOMAIN = 3
_CODES = {1: "FORMERR", 2: "SERVFAIL", 4: "NOTIMP", 5: "REFUSED"}


class DnsAnswer(NamedTuple):
    status: str  # RESOLVED | NO_NAME | NO_ADDRESS | FAILING | SILENT
    addresses: list[str]
    server: str
    text: str  # for the user


def servers(resolv_conf: str = RESOLV_CONF) -> list[str]:
    """Return the name servers of this machine, in order."""
    try:
        with open(resolv_conf, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1]


def ask(name: str, deadline: float, server: str = "", port: int = 53) -> DnsAnswer:
    """Return the server's answer for exactly this `name`, without a suffix, by `deadline`
    (time.monotonic()).
    """
    server = server or next(iter(servers()), "127.0.0.1")
    addresses: list[str] = []
    code: Optional[int] = None
    for kind in (_A, _AAAA):
        code, addresses = _question(name, kind, server, port, deadline)
        if code is None:
            return DnsAnswer(SILENT, [], server, f"{server} does not answer")
        if addresses or code != 0:
            break
    if code == _NXDOMAIN:
        return DnsAnswer(NO_NAME, [], server, f"{server} says NXDOMAIN")
    if code != 0:
        return DnsAnswer(FAILING, [], server, f"{server} says {_CODES.get(code or 0, code)}")
    if not addresses:
        return DnsAnswer(NO_ADDRESS, [], server, f"{server} knows the name, and no address of it")
    return DnsAnswer(RESOLVED, addresses, server, f"{server} says {', '.join(addresses)}")


def _question(
    name: str, kind: int, server: str, port: int, deadline: float
) -> tuple[Optional[int], list[str]]:
    """Return (response code, addresses). The code is None if there is no answer."""
    number = os.urandom(2)
    labels = b"".join(bytes([len(part)]) + part for part in name.rstrip(".").encode().split(b"."))
    packet = number + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        while time.monotonic() < deadline:
            try:
                asking.connect((server, port))  # an unconnected socket does not learn that a port is closed
                asking.send(packet)
                patience = max(min(_TRY, deadline - time.monotonic()), 0.0)
                if select.select([asking], [], [], patience)[0]:
                    data = asking.recv(4096)
                    if data[:2] == number and len(data) >= 12:
                        return data[3] & 15, _addresses(data, kind)
            except OSError:
                time.sleep(min(0.1, max(deadline - time.monotonic(), 0.0)))
    return None, []


def _addresses(data: bytes, kind: int) -> list[str]:
    """Return the addresses of this kind in the answer section, as far as that is complete."""
    questions, answers = struct.unpack(">HH", data[4:8])
    addresses, at = [], 12
    try:
        for _ in range(questions):
            at = _behind_name(data, at) + 4
        for _ in range(answers):
            at = _behind_name(data, at)
            type_, _, _, length = struct.unpack(">HHIH", data[at : at + 10])
            if type_ == kind:
                family = socket.AF_INET if kind == _A else socket.AF_INET6
                addresses.append(socket.inet_ntop(family, data[at + 10 : at + 10 + length]))
            at += 10 + length
    except (IndexError, ValueError, struct.error):
        pass
    return addresses


def _behind_name(data: bytes, at: int) -> int:
    while data[at]:
        if data[at] >= 0xC0:  # a pointer to the rest of it
            return at + 2
        at += 1 + data[at]
    return at + 1
