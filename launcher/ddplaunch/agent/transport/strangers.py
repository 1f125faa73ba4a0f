"""Identifies a foreign server at the address of the hub or of a peer, by its greeting or its answer."""

from __future__ import annotations

import socket
import struct
import time

_STORE_PING = struct.pack("<BIBI", 0, 0x3C85F7CE, 13, 0x64647031)
"""How every client of torch's TCPStore begins: validate, then ping, which gives back the last number."""
_STORE_PONG = _STORE_PING[-4:]
_QUESTIONS = (_STORE_PING, b"GET / HTTP/1.0\r\n\r\n")
"""Harmless to whatever is there, and answered with sense only by who is meant."""

OURS = b'{"ddplaunch"'
"""How everything of ddplaunch greets, of whatever job."""
_SIGNS = (
    (b"HTTP/", "it speaks HTTP (a web server, a proxy, or a service mesh)"),
    (_STORE_PONG, "it is the TCPStore of another training job"),
    (b"SSH-", "it is an SSH server"),
    (b"\x15\x03", "it speaks TLS"),
    (b"RFB ", "it is a VNC server"),
    (b"220", "it greets like a mail or FTP server"),
    (OURS, "it is of ddplaunch, of another job or attempt"),
)


def is_job(said: bytes) -> bool:
    """Whether whoever said that is there for another job as we are for ours."""
    return said.startswith((_STORE_PONG, OURS))


def describe(said: bytes) -> str:
    """A clause about whoever said that; empty when he said nothing."""
    for sign, clause in _SIGNS:
        if said.startswith(sign):
            return clause
    return f"it says {said[:60]!r}" if said else ""


def ask(host: str, port: int, seconds: float) -> bytes:
    """Return what a listener that is silent by itself says to questions. Empty: nothing, or it hangs up."""
    for question in _QUESTIONS:
        said = _ask(host, port, question, seconds / len(_QUESTIONS))
        if said:
            return said
    return b""


def is_up(host: str, port: int, seconds: float) -> bool:
    """Whether connections there are answered, be it by a refusal."""
    try:
        socket.create_connection((host, port), seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _ask(host: str, port: int, question: bytes, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    said = b""
    try:
        with socket.create_connection((host, port), seconds) as connection:
            connection.sendall(question)
            while len(said) < len(_STORE_PONG) and time.monotonic() < deadline:
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                data = connection.recv(256)
                if not data:
                    break
                said += data
    except OSError:
        pass
    return said
