"""The hub's sockets against everything that is not a well-behaved client. Real sockets, a real event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.agent.gate.jobs import wait_for
from tests.agent.hub.echo import EchoDesk
from tests.busy import BUSY

from ddplaunch.agent.contract import Beat, Phase
from ddplaunch.agent.contract.messages import Heartbeat
from ddplaunch.agent.hub import server as server_module
from ddplaunch.agent.hub.server import Server, UnauthenticatedConnections
from ddplaunch.agent.transport.protocol import (
    HELLO_LIMIT,
    Channel,
    LostError,
    ProtocolError,
    RefusedError,
    Seal,
    ServerHandshake,
)

KEY = b"the job's key"


class Hub:
    """A Server in a thread, and what it logged."""

    def __init__(self) -> None:
        self.handler = EchoDesk()
        self.log: list[str] = []
        self.server = Server(KEY, 0, [self.handler], self.log.append, nodes=1000, connections=6000)
        self.is_calm = False
        self._over = False
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(listener)), daemon=True)
        self._thread.start()

    async def _serve(self, listener: socket.socket) -> None:
        await self.server.serve(listener, lambda: self._over, lambda: self.is_calm)
        await self.server.drain(1.0)

    def connect(self, key: bytes = KEY) -> Channel:
        return Channel.connect("127.0.0.1", self.port, key, 0, time.monotonic() + BUSY * 20)

    def raw(self) -> socket.socket:
        """A plain connection that has read the greeting."""
        connection = socket.create_connection(("127.0.0.1", self.port), 20)
        self.nonce = json.loads(read_line(connection))["nonce"]
        return connection

    def still_serves(self) -> None:
        """Whatever happened before: a client of the job is answered at once."""
        with contextlib.closing(self.connect()) as client:
            client.send("echo", {"data": "here"})
            assert client.receive(BUSY * 5) == ("echo", {"data": "here"})

    def close(self) -> None:
        self.is_calm = False
        self.still_serves()  # its message ends a rest that has begun
        self._over = True
        self._thread.join(BUSY * 10)
        assert not self._thread.is_alive()


@pytest.fixture(name="hub")
def _hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


def read_line(connection: socket.socket) -> bytes:
    """Up to a newline or the end."""
    line = b""
    while not line.endswith(b"\n"):
        data = connection.recv(1)
        if not data:
            break
        line += data
    return line


def hung_up(connection: socket.socket, seconds: float = 10.0) -> bool:
    """Whether the other side closes within the seconds."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except socket.timeout:
        return False
    except OSError:
        pass
    return True


def test_messages_of_any_size_come_back_in_their_order(hub: Hub) -> None:
    client = hub.connect()
    for size in (0, 10, 3_000_000):
        client.send("echo", {"data": "y" * size})
        assert client.receive(BUSY * 10) == ("echo", {"data": "y" * size})
    client.close()
    wait_for(lambda: hub.handler.lost_sessions == 1)


def test_a_calm_server_ticks_when_a_session_begins_or_ends(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_CALM_TICK", 3600.0)
    client = hub.connect()
    hub.is_calm = True
    wait_for(lambda: hub.server._stirred)
    rest, ticks = hub.server._stirred, hub.handler.ticks
    beat = Heartbeat(Beat(0, Phase.RUNNING, 0.0))
    client.send(*beat.pack())
    assert beat.pack() == client.receive(BUSY * 10)
    assert rest is not None
    assert not rest.done()

    client.send("echo", {})
    wait_for(lambda: hub.handler.ticks > ticks)
    wait_for(lambda: hub.server._stirred)
    ticks = hub.handler.ticks
    client.close()
    wait_for(lambda: hub.handler.ticks > ticks)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\xff" * 400 + b"\n", b"0" * 64 + b" " + b"[" * 900 + b"\n", b'{"ddplaunch":1}\n'],
    ids=["bytes", "brackets", "no proof"],
)
def test_garbage_is_refused_and_forgotten(hub: Hub, garbage: bytes) -> None:
    with hub.raw() as connection:
        connection.sendall(garbage)
        assert json.loads(read_line(connection)) == {"refused": "key"}
        assert hung_up(connection)
    hub.still_serves()


def test_an_error_of_our_own_is_logged_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerHandshake, "answer", lambda *_: 1 / 0)
    for _ in range(3):
        with hub.raw() as connection:
            connection.sendall(b"hello\n")
            assert hung_up(connection)
    monkeypatch.undo()

    assert 1 == sum("ZeroDivisionError: division by zero" in line for line in hub.log)
    hub.still_serves()


def test_a_client_of_another_version_learns_why_it_is_refused(hub: Hub) -> None:
    with hub.raw() as connection:
        connection.sendall(b"0" * 64 + b' {"ddplaunch":2,"nonce":"c"}\n')
        assert json.loads(read_line(connection)) == {"refused": "version", "ddplaunch": 1}
    hub.still_serves()


def test_a_wrong_key_is_refused_once_in_the_log(hub: Hub) -> None:
    for _ in range(5):
        with pytest.raises(RefusedError):
            hub.connect(b"another job's key")

    assert ["refused 127.0.0.1: it does not know this job's key"] == [
        line for line in hub.log if line.startswith("refused")
    ]


def test_many_strangers_suppress_no_other_complaint(hub: Hub) -> None:
    for number in range(60):
        source = (f"127.0.1.{number + 1}", 0)
        with socket.create_connection(("127.0.0.1", hub.port), 20, source) as stranger:
            read_line(stranger)
            stranger.sendall(b"hello\n")
            assert hung_up(stranger)
    client = hub.connect()
    client.send("bug", {})
    with pytest.raises(LostError):
        client.receive(BUSY * 5)
    client.close()

    assert 50 == sum(line.startswith("refused") for line in hub.log)
    assert 1 == sum("further complaints" in line for line in hub.log)
    assert any("a mistake of this desk" in line for line in hub.log)


def test_a_line_without_end_is_cut_off(hub: Hub) -> None:
    with hub.raw() as connection:
        with contextlib.suppress(OSError):
            for _ in range(10):
                connection.sendall(b"x" * HELLO_LIMIT)
        assert hung_up(connection)
    hub.still_serves()


@pytest.mark.parametrize("how", ["in the middle of a line", "by a reset"])
def test_a_client_that_vanishes_leaves_nothing_behind(hub: Hub, how: str) -> None:
    client = hub.connect()
    if how == "by a reset":
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    else:
        client._socket.sendall(client._seal.seal({"kind": "echo", "body": {}})[:20])
    client.close()

    wait_for(lambda: hub.handler.lost_sessions == 1)
    assert hub.server.sessions == {}
    hub.still_serves()


def test_who_authenticates_byte_by_byte_is_dropped_in_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HELLO_SECONDS", 0.5)
    with hub.raw() as connection:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < BUSY * 5:
                connection.sendall(b"0")
                time.sleep(0.05)
        assert time.monotonic() - started < BUSY * 3
    hub.still_serves()


def test_a_slow_client_of_the_job_is_served(hub: Hub) -> None:
    slow = hub.connect()
    line = slow._seal.seal({"kind": "echo", "body": {"data": "slow"}})
    for start in range(0, len(line), 10):
        slow._socket.sendall(line[start : start + 10])
        if start < 50:
            hub.still_serves()

    assert slow.receive(BUSY * 5) == ("echo", {"data": "slow"})
    slow.close()


def test_a_recorded_connection_cannot_be_played_again(hub: Hub) -> None:
    seal = Seal(KEY, 0, server=False)
    with hub.raw() as connection:
        seal.nonces = hub.nonce.encode()
        hello = seal.seal({"ddplaunch": 1, "nonce": "c"})
        connection.sendall(hello)
        assert b"welcome" in read_line(connection)
    with hub.raw() as connection:
        connection.sendall(hello)
        assert json.loads(read_line(connection)) == {"refused": "key"}


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("bad", "wanted an object"),
        ("bug", "a mistake of this desk"),
        ("dance", "a message that the hub does not accept"),
    ],
    ids=["a handler refuses", "a handler fails", "no handler takes"],
)
def test_a_message_that_cannot_be_taken_ends_its_session_alone(hub: Hub, kind: str, complaint: str) -> None:
    with contextlib.closing(hub.connect()) as client:
        client.send(kind, {})
        with pytest.raises(LostError):
            client.receive(BUSY * 5)

    hub.still_serves()
    assert any(complaint in line for line in hub.log)


def test_a_failing_tick_does_not_stop_the_next(hub: Hub) -> None:
    wait_for(lambda: hub.handler.ticks > 5)

    assert 1 == sum("a mistake in the first tick" in line for line in hub.log)


def test_a_client_that_never_reads_is_dropped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LONG", 4_000_000)
    client = hub.connect()
    client.send("flood", {})

    wait_for(lambda: hub.handler.lost_sessions == 1, 20)
    client.close()
    hub.still_serves()


def test_a_thousand_clients_are_answered_beside_strangers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for side in ("transport.protocol", "hub.server"):
        monkeypatch.setattr(f"ddplaunch.agent.{side}.HELLO_SECONDS", BUSY * 30)
    raise_file_limit(6000)
    clients: list[Channel] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            clients.extend(opened.enter_context(contextlib.closing(hub.connect())) for _ in range(50))
        except ProtocolError as error:
            failures.append(error)

    with contextlib.ExitStack() as opened:
        for _ in range(200):
            opened.enter_context(socket.create_connection(("127.0.0.1", hub.port), 20))
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        wait_for(lambda: len(hub.server.sessions) == 1000, 30)
        for number, client in enumerate(clients):
            client.send("echo", {"data": number})
        for number, client in enumerate(clients):
            assert client.receive(BUSY * 20) == ("echo", {"data": number})
    wait_for(lambda: hub.server.sessions == {}, 30)
    hub.still_serves()


def raise_file_limit(wanted: int) -> None:
    """Both ends of every connection live in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def test_a_flood_drops_its_own_connections_and_no_other_nodes() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    connections.add("10.0.0.1", "a node", 3)
    for number in range(2):
        connections.add("10.0.0.9", f"flood {number}", 3)

    assert ["flood 0", "flood 1"] == [connections.add("10.0.0.9", f"flood {number}", 3) for number in (2, 3)]
    assert ["a node", "flood 2", "flood 3"] == connections.guests()


def test_of_many_addresses_the_oldest_connection_is_dropped() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    assert [None] * 3 == [connections.add(f"10.0.0.{number}", f"guest {number}", 3) for number in range(3)]

    assert "guest 0" == connections.add("10.0.0.7", "guest 7", 3)


def test_a_connection_that_has_authenticated_makes_room_and_leaves_only_once() -> None:
    connections: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    connections.add("10.0.0.1", "guest 0", 1)

    assert connections.remove("10.0.0.1", "guest 0")
    assert not connections.remove("10.0.0.1", "guest 0")
    assert connections.add("10.0.0.1", "guest 1", 1) is None
