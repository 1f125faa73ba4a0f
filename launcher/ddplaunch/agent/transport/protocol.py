"""The protocol between the nodes of a job: authenticated JSON lines over TCP.

::

    server  {"ddplaunch": 1, "nonce": S}                     plain: it tells a hub from a stranger
    client  MAC {"ddplaunch": 1, "nonce": C}                 MAC over S: it knows the key
    server  MAC {"kind": "welcome", "body": {}}              or plain {"refused": "key", "job": NAME}
    both    MAC {"kind": KIND, "body": {...}}                each with its own counter

A MAC is HMAC-SHA256 over direction, both nonces, the counter and the JSON, under the job's key mixed with the
attempt. So a line of another job, of an earlier attempt, of another connection, or a line sent twice is
refused. Lines are authenticated, not encrypted.

`connect` tells a refusal by a firewall from one by the host.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import sys
import threading
import time
from typing import Any, Optional

from ddplaunch.agent.contract import VERSION
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, plain_address, resolve
from ddplaunch.agent.text.redact import NO_SECRETS

_REPORT_ERRORS: dict[int, tuple[int, int]] = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
"""IP_RECVERR in linux/in.h and IPV6_RECVERR in linux/in6.h; Python has no names for them."""
_ORIGIN = 4
_ICMP = (2, 3)
"""Where a sock_extended_err has its origin, and which origins mean ICMP: linux/errqueue.h."""


class RejectedError(ConnectionRefusedError):
    """An ICMP message refuses the connection. A host refuses with TCP, so this is a firewall."""


def connect(address: str, port: int, seconds: float) -> socket.socket:
    """Return a socket connected to a numeric address. Raises OSError.

    Before Linux 5.8, the kernel does not tell who refused, and RejectedError is never raised.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        _report_errors(connection, True)
        connection.connect((address, port))
        _report_errors(connection, False)  # otherwise a later ICMP message would end the connection
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


HELLO_LIMIT = 1024
"""Bytes to read and keep from an unauthenticated client."""
HELLO_SECONDS = 5.0
"""Seconds for a client to authenticate."""
LINE_LIMIT = 32 * 1024 * 1024
"""Bytes in the longest line: the evidence of a node with many ranks takes a few MiB."""
_ADDRESS_SECONDS = 3.0
"""Seconds at most for one address if a name has several: a dead one must leave time for the next."""
_CHUNK = 256 * 1024
_PMTU, _BYTES_ACKED, _MIN_RTT, _UNSET = 60, 120, 148, 0xFFFFFFFF
"""Offsets in struct tcp_info (linux/tcp.h), of the second since Linux 4.1, the third since 4.6; no value."""

Body = dict[str, Any]
Message = tuple[str, Body]


class ProtocolError(Exception):
    """The peer cannot be reached, or does not follow the protocol. The subclass says which."""


class UnreachableError(ProtocolError):
    """There is no connection. `kind`: not-found | unanswered | refused | rejected | timeout | unreachable |
    reset.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class StrangerError(ProtocolError):
    """Another program accepts the connections. `greeting`: its first bytes, often none."""

    def __init__(self, greeting: bytes, detail: str) -> None:
        super().__init__(detail)
        self.greeting = greeting


class RefusedError(ProtocolError):
    """ddplaunch answers for `job` and refuses us. `why`: key (another job or attempt) | version."""

    def __init__(self, why: str, detail: str, job: str = "") -> None:
        super().__init__(detail)
        self.why = why
        self.job = job


class LostError(ProtocolError):
    """An established connection is gone, or broke the protocol."""


def encode(data: Any) -> bytes:
    """Return the bytes of `data` as they are in a line."""
    return json.dumps(data, separators=(",", ":")).encode()


class Seal:
    """Makes and checks the lines of one connection. Pure, except for its counters."""

    def __init__(self, key: bytes, attempt: int, server: bool) -> None:
        self._key = hmac.digest(key, b"ddplaunch attempt %d" % attempt, "sha256")
        self._directions = (b"server", b"client") if server else (b"client", b"server")
        self._sent = 0
        self._received = 0
        self.nonces = b""

    def seal(self, data: Any) -> bytes:
        """Return the next line to send, with its newline."""
        return self.seal_text(encode(data))

    def seal_text(self, text: bytes) -> bytes:
        """Return the next line to send, from bytes that `encode` returned."""
        line = self._mac(self._directions[0], self._sent, text) + b" " + text + b"\n"
        self._sent += 1
        return line

    def open(self, line: bytes) -> Optional[Any]:
        """Return the data in the next line received; None if its MAC is wrong."""
        mac, _, text = line.rstrip(b"\r\n").partition(b" ")
        if not hmac.compare_digest(mac, self._mac(self._directions[1], self._received, text)):
            return None
        self._received += 1
        return _parsed(text)

    def _mac(self, direction: bytes, counter: int, text: bytes) -> bytes:
        head = b"%s %s %d " % (direction, self.nonces, counter)
        return hmac.new(self._key, head + text, hashlib.sha256).hexdigest().encode()


class ServerHandshake:
    """The server's side of the first three lines, for both blocking and asynchronous callers."""

    def __init__(self, key: bytes, attempt: int, job: str = "") -> None:
        self.seal = Seal(key, attempt, server=True)
        self._job = job
        self._nonce = os.urandom(16).hex()
        self.seal.nonces = self._nonce.encode()
        self.hello = _plain({"ddplaunch": VERSION, "nonce": self._nonce})

    def answer(self, line: bytes) -> tuple[bytes, bool]:
        """Return the answer to the client's first line, and whether the client knows the key. If not,
        close.
        """
        theirs = _version_of(line.partition(b" ")[2])
        if theirs is not None and theirs != VERSION:
            return _plain({"refused": "version", "ddplaunch": VERSION}), False
        data = self.seal.open(line)
        nonce = data.get("nonce") if isinstance(data, dict) else None
        if not isinstance(nonce, str) or not nonce:
            called = {"job": self._job} if self._job else {}
            return _plain({"refused": "key", **called}), False
        self.seal.nonces += b" " + nonce.encode("utf-8", "surrogatepass")
        return self.seal.seal({"kind": "welcome", "body": {}}), True


def message(data: Any) -> Optional[Message]:
    """Return (kind, body) of an opened line; None if it is no message."""
    if not isinstance(data, dict):
        return None
    kind, body = data.get("kind"), data.get("body")
    return (kind, body) if isinstance(kind, str) and isinstance(body, dict) else None


def _plain(data: Any) -> bytes:
    return encode(data) + b"\n"


def _parsed(text: bytes) -> Any:
    """Return the JSON value; None if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _version_of(text: bytes) -> Optional[int]:
    """Return the version in a hello or in a plain refusal; None if it is neither."""
    data = _parsed(text)
    version = data.get("ddplaunch") if isinstance(data, dict) else None
    return version if type(version) is int else None


class Channel:
    """One blocking connection. One thread may send while another receives. `redactor` hides secrets in
    `send`.

    All waits are bounded: `deadline` is a moment of time.monotonic(), `timeout` a number of seconds.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._scanned = 0
        self._sending = threading.Lock()
        self._seal: Seal
        self.redactor = NO_SECRETS
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connection)

    @classmethod
    def connect(cls, host: str, port: int, key: bytes, attempt: int, deadline: float) -> Channel:
        """Connect and authenticate, once. Raises UnreachableError, StrangerError or RefusedError."""
        channel = cls(dial(host, port, deadline))
        try:
            channel._introduce(key, attempt, min(deadline, time.monotonic() + HELLO_SECONDS))
        except BaseException:
            channel.close()
            raise
        return channel

    @classmethod
    def accept(
        cls, connection: socket.socket, key: bytes, attempt: int, deadline: float, job: str = ""
    ) -> Channel:
        """Do the server's side on an accepted socket. Raises LostError or RefusedError after closing it.

        `job`: its name, which is sent to clients of another job.
        """
        channel = cls(connection)
        handshake = ServerHandshake(key, attempt, job)
        try:
            channel._write(handshake.hello, deadline)
            line = channel._line(deadline, HELLO_LIMIT)
            if line is None:
                raise LostError("no line came in time")
            answer, ours = handshake.answer(line)
            channel._write(answer, deadline)
            if not ours:
                raise RefusedError("key", "the client does not know this job's key")
        except BaseException:
            channel.close()
            raise
        channel._seal = handshake.seal
        return channel

    def send(self, kind: str, body: Body, timeout: float = 30.0) -> None:
        """Send a message. Raises LostError if the connection is gone, or takes no data in time."""
        data = {"kind": kind, "body": self.redactor.hide(body)}
        with self._sending:
            self._write(self._seal.seal(data), time.monotonic() + timeout)

    def receive(self, timeout: float) -> Optional[Message]:
        """Return the next message, or None if none came in time. Raises LostError.

        After `fileno()` has become readable, call this with timeout 0 until it returns None: several may have
        come at once.
        """
        line = self._line(time.monotonic() + timeout, LINE_LIMIT)
        if line is None:
            return None
        received = message(self._seal.open(line))
        if received is None:
            raise LostError("the other side sent a line that is not sealed with this job's key")
        return received

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def local_address(self) -> str:
        """Return our own address on this connection."""
        return plain_address(str(self._socket.getsockname()[0]))

    @property
    def acknowledged(self) -> int:
        """Return how many bytes the peer's kernel has acknowledged; 0 if ours does not count them."""
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[_BYTES_ACKED:]
        return int.from_bytes(info[:8], sys.byteorder) if len(info) >= 8 else 0

    def link(self) -> tuple[int, ...]:
        """Return the shortest round trip in microseconds, and the path MTU; 0: the kernel does not tell."""
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256).ljust(256, b"\0")
        return tuple(int.from_bytes(info[at : at + 4], sys.byteorder) % _UNSET for at in (_MIN_RTT, _PMTU))

    def close(self) -> None:
        self._socket.close()

    def _introduce(self, key: bytes, attempt: int, deadline: float) -> None:
        line = self._hello_line(deadline)
        theirs = _version_of(line)
        if theirs is None:
            raise StrangerError(line, f"it said {line[:80]!r}")
        if theirs != VERSION:
            raise RefusedError("version", f"the hub speaks version {theirs}, this agent {VERSION}")
        nonces = (str(json.loads(line).get("nonce")), os.urandom(16).hex())
        self._seal = Seal(key, attempt, server=False)
        self._seal.nonces = nonces[0].encode("utf-8", "surrogatepass")
        hello = self._seal.seal({"ddplaunch": VERSION, "nonce": nonces[1]})
        self._seal.nonces = " ".join(nonces).encode("utf-8", "surrogatepass")
        try:
            self._write(hello, deadline)
            line = self._line(deadline, HELLO_LIMIT) or b""
        except LostError as error:
            raise UnreachableError("reset", str(error)) from error
        if message(self._seal.open(line)) is None:
            raise _refusal(line)

    def _hello_line(self, deadline: float) -> bytes:
        """Return the server's first line. Raises StrangerError, or UnreachableError if it hangs up."""
        try:
            line = self._line(deadline, HELLO_LIMIT)
        except LostError as error:
            if self._buffer:
                raise StrangerError(bytes(self._buffer), f"it said {bytes(self._buffer[:80])!r}") from error
            raise UnreachableError("reset", str(error)) from error
        if line is None:
            greeting = bytes(self._buffer)
            detail = f"it said {greeting[:80]!r}" if greeting else "it accepts connections and is silent"
            raise StrangerError(greeting, detail)
        return line

    def _line(self, deadline: float, limit: int) -> Optional[bytes]:
        """Return the next line; None if it is incomplete at the deadline. Raises LostError."""
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._buffer)
            if len(self._buffer) > limit:
                raise LostError(f"a line of more than {limit} bytes")
            if not self._fill(deadline, min(_CHUNK, limit + 1)):
                return None

    def _fill(self, deadline: float, most: int) -> bool:
        try:
            data = self._socket.recv(most)
        except (BlockingIOError, InterruptedError):
            return self._ready(select.POLLIN, deadline)
        except OSError as error:
            raise LostError(_name(error)) from error
        if not data:
            raise LostError("the other side closed the connection")
        self._buffer += data
        return True

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, InterruptedError):
                if not self._ready(select.POLLOUT, deadline):
                    raise LostError("the other side does not read") from None
            except OSError as error:
                raise LostError(_name(error)) from error

    def _ready(self, event: int, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _refusal(line: bytes) -> ProtocolError:
    data = _parsed(line)
    why = data.get("refused") if isinstance(data, dict) else None
    if why == "version":
        return RefusedError("version", f"the hub speaks version {_version_of(line)}, this agent {VERSION}")
    if why == "key":
        job = str(data.get("job") or "")
        called = f", called {job!r}" if job else ""
        return RefusedError("key", f"it is ddplaunch of another job, or of another attempt{called}", job)
    return StrangerError(line, f"it greets like ddplaunch and then said {line[:80]!r}")


def dial(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket connected to the first address that answers. Raises UnreachableError."""
    try:
        addresses = resolve(host, deadline)
    except UnknownNameError as error:
        raise UnreachableError("not-found", str(error)) from error
    except UnansweredNameError as error:
        raise UnreachableError("unanswered", str(error)) from error
    failure: Optional[UnreachableError] = None
    for place, address in enumerate(addresses):
        patience = deadline - time.monotonic()
        if len(addresses) > 1:
            patience = min(patience / (len(addresses) - place), _ADDRESS_SECONDS)
        try:
            return connect(address, port, max(patience, 0.001))
        except OSError as error:
            failure = failure or UnreachableError(_kind(error), f"{address} port {port}: {_name(error)}")
    assert failure is not None
    raise failure


def _kind(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "rejected" if isinstance(error, RejectedError) else "refused"
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "timeout"
    return "reset" if isinstance(error, ConnectionError) else "unreachable"


def _name(error: OSError) -> str:
    return error.strerror or str(error)


def _keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice, within about a minute, that a peer vanished without closing.

    Keep-alive does not run while data is unacknowledged. Then TCP_USER_TIMEOUT counts; without it the kernel
    would resend for a quarter of an hour.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    minute = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 60_000}
    for option, value in minute.items():
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
