"""The hub's sockets: accepts clients, authenticates them, and hands each message to its handler.

A client authenticates within `HELLO_SECONDS` and `HELLO_LIMIT` bytes, or is dropped. Until then it costs the
hub a few kB: no task, no stream, and a buffer for its first line alone; and only a limited number may wait at
once. An exception in a handler drops that one client, never the hub. What a client does not read is buffered,
up to `messages.LONG` bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Iterable, Sequence, Set
from typing import Any, Callable, Generic, Optional, Protocol, TypeVar

from ddplaunch.agent.contract import messages
from ddplaunch.agent.contract.messages import LONG, Message, Way
from ddplaunch.agent.plan.codec import ContractError
from ddplaunch.agent.system.resolve import plain_address
from ddplaunch.agent.transport.protocol import HELLO_LIMIT, HELLO_SECONDS, ServerHandshake, encode, message

Guest = TypeVar("Guest")


class UnauthenticatedConnections(Generic[Guest]):
    """Connections that have not proved yet that they know the key: how many may wait, and which goes first.

    If there are too many, the address that has the most loses its oldest connection. So a flood from one
    address drops its own connections and no other node's, and nodes behind one NAT address may still come all
    at once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Guest, None]] = {}  # by address, the oldest first
        self._count = 0

    def add(self, address: str, guest: Guest, room: int) -> Optional[Guest]:
        """Add `guest`. Returns the connection to drop for it; None while no more than `room` wait."""
        self._waiting.setdefault(address, {})[guest] = None
        self._count += 1
        if self._count <= room:
            return None
        most = max(self._waiting, key=lambda each: len(self._waiting[each]))
        oldest = next(iter(self._waiting[most]))
        self.remove(most, oldest)
        return oldest

    def remove(self, address: str, guest: Guest) -> bool:
        """Remove a connection that has authenticated or closed. Returns whether it was still waiting."""
        guests = self._waiting.get(address, {})
        if guest not in guests:
            return False
        del guests[guest]
        if not guests:
            del self._waiting[address]
        self._count -= 1
        return True

    def guests(self) -> list[Guest]:
        return [guest for guests in self._waiting.values() for guest in guests]


OnLine = Callable[["Authentication", bytes, bytes], None]
"""Called with the first line, and with the bytes after it. It answers, or drops the connection."""


class Authentication(asyncio.BufferedProtocol):
    """Sends the greeting and waits for one line, at most HELLO_SECONDS and HELLO_LIMIT bytes."""

    def __init__(
        self,
        handshake: ServerHandshake,
        unauthenticated: UnauthenticatedConnections[Authentication],
        room: Callable[[], int],
        on_line: OnLine,
    ) -> None:
        self.handshake = handshake
        self.peer = ""
        self.transport: asyncio.Transport
        self._unauthenticated = unauthenticated
        self._room = room
        self._on_line = on_line
        self._buffer = bytearray(HELLO_LIMIT)
        self._length = 0
        self._timer: Optional[asyncio.TimerHandle] = None

    def shut(self) -> None:
        """Drop the connection without an answer."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer = plain_address((transport.get_extra_info("peername") or ("gone",))[0])
        dropped = self._unauthenticated.add(self.peer, self, self._room())
        if dropped is not None:
            dropped.shut()
        transport.write(self.handshake.hello)
        self._timer = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.shut)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's own signature
        return memoryview(self._buffer)[self._length :]

    def buffer_updated(self, nbytes: int) -> None:
        self._length += nbytes
        end = self._buffer.find(b"\n", 0, self._length)
        if end < 0:
            if self._length == HELLO_LIMIT:
                self.shut()
            return
        self._leave()
        self._on_line(self, bytes(self._buffer[: end + 1]), bytes(self._buffer[end + 1 : self._length]))

    def connection_lost(self, exc: Optional[Exception]) -> None:  # noqa: ARG002 - asyncio's own signature
        self._leave()

    def _leave(self) -> None:
        self._unauthenticated.remove(self.peer, self)
        if self._timer is not None:
            self._timer.cancel()


TICK = 0.1
"""Seconds between two ticks of the handlers."""
_CALM_TICK = 0.4
"""The same in a calm job, because each tick takes a moment from a core that a rank may need."""
BACKLOG = 4096
_ACCEPTS = 8
"""Connections accepted in one go. Each needs a file descriptor before the connection that it replaces is
closed."""
_WAITING = 256
"""Unauthenticated connections besides two for each node, as far as there are file descriptors."""
_FEWEST = 16
_CLOSING = 32
"""File descriptors kept free for connections that were dropped, but that asyncio has not closed yet: those of
several rounds of `_ACCEPTS` where strangers call faster than they can be dropped."""
_COMPLAINTS = 50
_CHUNK = 256 * 1024
_UNACKED, _LAST_ACK = 24, 56
"""Offsets of tcpi_unacked and tcpi_last_ack_recv in struct tcp_info (linux/tcp.h)."""


class MessageHandler(Protocol):
    """Handles messages. Within one session calls never overlap; while one awaits, other sessions go on."""

    @property
    def takes(self) -> tuple[type[Message], ...]:
        """Return the types of messages that this handler takes."""

    async def received(self, session: Session, message: Message) -> None:
        """Handle a message. An exception drops the session; a ContractError blames the client."""

    async def lost(self, session: Session) -> None:
        """Handle the end of a session. Every handler is called."""

    async def tick(self, now: float) -> None:
        """Act on the time. Called about every TICK seconds, and less often in a calm job.

        `now`: time.monotonic().
        """

    async def stop(self, why: str) -> None:
        """End the job: `record.end` has to follow soon. Every handler is called."""


class Session:
    """One authenticated client. `node`: its node, set by the handlers once a message names it."""

    _ids = itertools.count()

    def __init__(self, writer: asyncio.StreamWriter, handshake: ServerHandshake) -> None:
        self.id = next(self._ids)
        self.node: Optional[int] = None
        self.peer = plain_address(writer.get_extra_info("peername")[0])
        self.local = plain_address(writer.get_extra_info("sockname")[0])  # the client's way to us
        self.closed = False
        self._writer = writer
        self._seal = handshake.seal

    def send(self, message: Message) -> None:
        """Queue a message and return at once, even if the client is gone. Drop a client that never reads."""
        self.send_encoded(_encoded(message))

    def send_encoded(self, text: bytes) -> None:
        if self.closed:
            return
        self._writer.write(self._seal.seal_text(text))
        if self._writer.transport.get_write_buffer_size() > LONG:
            self.abort()

    def unconfirmed(self) -> float:
        """Return the seconds since the client's kernel last acknowledged data; 0 if nothing is open."""
        info = self._writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        unacked, last = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (_UNACKED, _LAST_ACK))
        return last / 1000 if unacked else 0.0

    def close(self) -> None:
        """End the session once all queued data is sent."""
        self.closed = True
        self._writer.close()

    def abort(self) -> None:
        self.closed = True
        self._writer.transport.abort()

    def open(self, line: bytes) -> Optional[Message]:
        """Return the message in a line; None if a hub takes no such message. Raises ContractError."""
        parts = message(self._seal.open(line))
        read = None if parts is None else messages.load(*parts, *_TO_HUB)
        return None if read is None or len(line) > read.limit + _SEAL else read


_TO_HUB = (Way.GATE_TO_HUB, Way.SUPERVISOR_TO_HUB, Way.COMMAND_TO_HUB)
_SEAL = 128
"""Bytes of a line besides its message."""


def _encoded(message: Message) -> bytes:
    kind, body = message.pack()
    return encode({"kind": kind, "body": body})


def send_all(sessions: Iterable[Session], message: Message) -> None:
    """Send the same message, encoded once, to all sessions."""
    text = _encoded(message)
    for session in sessions:
        session.send_encoded(text)


class NodeSessions:
    """The sessions of the connected supervisors. If a node has joined again, its last session counts."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    @property
    def nodes(self) -> Set[int]:
        return self._sessions.keys()

    def add(self, node: int, session: Session) -> None:
        self._sessions[node] = session

    def remove(self, session: Session) -> bool:
        """Remove a session that has ended. Returns whether it was still the node's current one."""
        if session.node is None or self._sessions.get(session.node) is not session:
            return False
        del self._sessions[session.node]
        return True

    def send(self, node: int, message: Message) -> None:
        self._sessions[node].send(message)

    def send_to_all(self, message: Message) -> None:
        send_all(self._sessions.values(), message)


class Server:
    """Accepts clients, authenticates them, and hands their messages to the handlers."""

    def __init__(
        self,
        key: bytes,
        attempt: int,
        handlers: Sequence[MessageHandler],
        log: Callable[[str], None],
        *,
        nodes: int,
        connections: int,
        job: str = "",
        refused: Optional[set[str]] = None,
    ) -> None:
        """Make a server. `connections`: the most that may be open at once, whether authenticated or not.

        `refused` takes the addresses of clients that do not know the key.
        """
        self._key = key
        self._job = job
        self._nodes = nodes
        self._connections = connections
        self._refused = set() if refused is None else refused
        self._attempt = attempt
        self._handlers = handlers
        self._log = log
        self._complaints: set[str] = set()
        self._refusals: set[str] = set()  # kept apart: a port scanner must not use up the others
        self._unauthenticated: UnauthenticatedConnections[Authentication] = UnauthenticatedConnections()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._stirred: Optional[asyncio.Future[None]] = None  # what a calm job waits for
        self.sessions: dict[int, Session] = {}

    async def serve(
        self, listener: socket.socket, over: Callable[[], bool], is_calm: Callable[[], bool] = lambda: False
    ) -> None:
        """Serve until `over()` returns True; it is called after every tick.

        `is_calm`: returns whether nothing is due soon unless a message, or the end of a session, brings it.
        """
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unexpected)
        server = await loop.create_server(self._door, sock=listener, backlog=_ACCEPTS)
        listener.listen(BACKLOG)  # asyncio's `backlog` also limits how many are accepted in one go
        try:
            while not over():
                await (self._rest() if is_calm() else asyncio.sleep(TICK))
                for handler in self._handlers:
                    await self._guard(handler.tick(time.monotonic()), "tick")
        finally:
            server.close()

    async def _rest(self) -> None:
        """Wait for a calm job's next tick, or for a message that may end the calm."""
        self._stirred = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._stirred], timeout=_CALM_TICK)
        self._stirred = None

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    async def stop(self, why: str) -> None:
        self._stir()
        for handler in self._handlers:
            await self._guard(handler.stop(why), "stop")

    async def drain(self, seconds: float) -> None:
        """Let clients read what was sent to them, for at most `seconds`; then close all connections."""
        deadline = time.monotonic() + seconds
        for session in list(self.sessions.values()):
            session.close()
        for authentication in self._unauthenticated.guests():
            authentication.shut()
        while self._writers and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for writer in list(self._writers):
            writer.transport.abort()

    def _door(self) -> Authentication:
        return Authentication(
            ServerHandshake(self._key, self._attempt, self._job),
            self._unauthenticated,
            self._room,
            self._prove,
        )

    def _room(self) -> int:
        """Return how many may be unauthenticated: a node may reconnect before its last connection ends."""
        left = self._connections - len(self.sessions) - _CLOSING
        return max(_FEWEST, min(2 * self._nodes + _WAITING, left))

    def _prove(self, authentication: Authentication, line: bytes, more: bytes) -> None:
        try:
            answer, ours = authentication.handshake.answer(line)
        except Exception:  # whatever a stranger sends, the hub goes on
            self._complain(f"an error while serving a client:\n{traceback.format_exc()}")
            authentication.shut()
            return
        authentication.transport.write(answer)
        if ours:
            task = asyncio.get_running_loop().create_task(
                self._client(*_streams(authentication.transport, more), authentication)
            )
            self._tasks.add(task)  # otherwise it could be collected while it runs
            task.add_done_callback(self._tasks.discard)
        else:
            authentication.transport.close()
            if len(self._refused) < _COMPLAINTS:
                self._refused.add(authentication.peer)
            self._complain(f"refused {authentication.peer}: it does not know this job's key", self._refusals)

    async def _client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authentication: Authentication
    ) -> None:
        self._writers.add(writer)
        try:
            await self._session(_LineReader(reader), Session(writer, authentication.handshake))
        except (OSError, EOFError):
            pass  # clients come and go; those that mattered are reported by their handler
        except Exception:  # asyncio itself would log each one
            self._complain(f"an error while serving a client:\n{traceback.format_exc()}")
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _session(self, lines: _LineReader, session: Session) -> None:
        self.sessions[session.id] = session
        try:
            while not session.closed:
                if not await self._dispatch(session, await lines.next(LONG)):
                    self._complain(f"dropped {session.peer}: it sent a message that the hub does not accept")
                    session.abort()
        finally:
            session.closed = True
            self.sessions.pop(session.id, None)
            self._stir()
            for handler in self._handlers:
                await self._guard(handler.lost(session), "lost")

    async def _dispatch(self, session: Session, line: bytes) -> bool:
        try:
            message = session.open(line)
        except ContractError as error:
            self._complain(f"cannot read a message from {session.peer}: {error}")
            return False
        if not isinstance(message, messages.Heartbeat):
            self._stir()
        for handler in self._handlers:
            if isinstance(message, handler.takes):
                work = handler.received(session, message)
                return await self._guard(work, f"{message.kind} of {session.peer}")
        return False

    async def _guard(self, work: Awaitable[None], what: str) -> bool:
        """Run `work`; return whether it went well. A handler's bug must not end the hub and lose evidence."""
        try:
            await work
            return True
        except ContractError as error:
            self._complain(f"{what}: {error}")
        except Exception:
            self._complain(f"a handler failed on {what}:\n{traceback.format_exc()}")
        return False

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an asyncio error once: without free descriptors it comes BACKLOG times a second."""
        self._complain(f"{context['message']}: {context.get('exception')}")

    def _complain(self, text: str, logged: Optional[set[str]] = None) -> None:
        """Log each complaint once, and only so many of them."""
        logged = self._complaints if logged is None else logged
        if text in logged or len(logged) > _COMPLAINTS:
            return
        logged.add(text)
        self._log(text if len(logged) <= _COMPLAINTS else "further complaints of the kind are not logged")


def _streams(transport: asyncio.Transport, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return reader and writer, as asyncio.start_server does, for a connection that had another protocol."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    reader.feed_data(data)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class _LineReader:
    """Whole lines from a stream, each within its own limit: asyncio has only one limit per stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._scanned = 0

    async def next(self, limit: int) -> bytes:
        """Return the next line. Raises EOFError at the end of the stream, and for a line beyond the limit."""
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                self._scanned = 0
                return line
            self._scanned = len(self._buffer)
            data = await self._reader.read(_CHUNK)
            if not data or len(self._buffer) + len(data) > limit:
                raise EOFError
            self._buffer += data
