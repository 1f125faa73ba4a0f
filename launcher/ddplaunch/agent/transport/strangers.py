"""Identifies a foreign server at the address of the hub or of a peer, from its greeting or its answer."""

from __future__ import annotations

import socket
import struct
import time

_STORE_PING = struct.pack("<BIBI", 0, 0x3C85F7CE, 13, 0x64647031)
"""The first bytes of any client of torch's TCPStore: validate, then ping, which returns the last number."""
_STORE_PONG = _STORE_PING[-4:]
_QUESTIONS = (_STORE_PING, b"GET / HTTP/1.0\r\n\r\n")
"""These harm no server, and only the kind of server that is meant answers them."""

OURS = b'{"ddplaunch"'
"""The first bytes of any ddplaunch server, of any job."""
_SIGNS = (
    (b"HTTP/", "it speaks HTTP (a web server, a proxy, or a service mesh)"),
    (_STORE_PONG, "it is the TCPStore of another training job"),
    (b"SSH-", "it is an SSH server"),
    (b"\x15\x03", "it speaks TLS"),
    (b"RFB ", "it is a VNC server"),
    (b"220", "it greets like a mail or FTP server"),
    (OURS, "it is of ddplaunch, of another job or attempt"),
)


def is_job(greeting: bytes) -> bool:
    """Whether the greeting is another training job's."""
    return greeting.startswith((_STORE_PONG, OURS))


def describe(greeting: bytes) -> str:
    """Return a clause about the server with this greeting; "" for an empty one."""
    for sign, clause in _SIGNS:
        if greeting.startswith(sign):
            return clause
    return f"it says {greeting[:60]!r}" if greeting else ""


def ask(host: str, port: int, seconds: float) -> bytes:
    """Return a silent listener's answer to our questions; b"" if it sends nothing or hangs up."""
    for question in _QUESTIONS:
        answer = _ask(host, port, question, seconds / len(_QUESTIONS))
        if answer:
            return answer
    return b""


def is_up(host: str, port: int, seconds: float) -> bool:
    """Whether a connection there is accepted or refused within `seconds`."""
    try:
        socket.create_connection((host, port), seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _ask(host: str, port: int, question: bytes, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    answer = b""
    try:
        with socket.create_connection((host, port), seconds) as connection:
            connection.sendall(question)
            while len(answer) < len(_STORE_PONG) and time.monotonic() < deadline:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                data = connection.recv(256)
                if not data:
                    break
                answer += data
    except OSError:
        pass
    return answer
