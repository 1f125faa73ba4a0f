"""Two ends of a real connection: addresses, what passes and is refused, and what a stranger looks like."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.busy import BUSY

from ddplaunch.agent.transport import endpoints, protocol
from ddplaunch.agent.transport.endpoints import Endpoint
from ddplaunch.agent.transport.protocol import (
    Channel,
    LostError,
    RefusedError,
    Seal,
    ServerHandshake,
    StrangerError,
    UnreachableError,
)

KEY = b"a key of this job"


def soon(seconds: float = 5.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


@pytest.fixture(name="listener")
def _listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


def port_of(listener: socket.socket) -> int:
    """Where it listens."""
    return int(listener.getsockname()[1])


def accept_in_thread(
    listener: socket.socket, key: bytes = KEY, attempt: int = 0
) -> tuple[threading.Thread, list[object]]:
    """Accept one Channel; the list gets it, or the exception."""
    got: list[object] = []

    def work() -> None:
        connection, _ = listener.accept()
        try:
            got.append(Channel.accept(connection, key, attempt, soon()))
        except protocol.ProtocolError as error:
            got.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, got


@pytest.fixture(name="ends")
def _ends(listener: socket.socket) -> Iterator[tuple[Channel, Channel]]:
    """(client, server)."""
    thread, got = accept_in_thread(listener)
    client = Channel.connect("127.0.0.1", port_of(listener), KEY, 0, soon())
    thread.join()
    server = got[0]
    assert isinstance(server, Channel)
    yield client, server
    client.close()
    server.close()


def sealed_pair(key: bytes = KEY, attempt: int = 0) -> tuple[Seal, Seal]:
    """(client, server) that have met."""
    client, server = Seal(KEY, 0, server=False), Seal(key, attempt, server=True)
    client.nonces = server.nonces = b"s c"
    return client, server


def test_messages_of_any_number_and_size_pass_in_both_directions(ends: tuple[Channel, Channel]) -> None:
    client, server = ends
    client.send("one", {"n": 1})
    client.send("two", {"text": "grüße\n" * 200_000})
    server.send("three", {})

    assert server.receive(BUSY * 5) == ("one", {"n": 1})
    assert server.receive(BUSY * 5) == ("two", {"text": "grüße\n" * 200_000})
    assert client.receive(BUSY * 5) == ("three", {})


def test_receive_returns_nothing_at_its_timeout_and_the_next_one_later(
    ends: tuple[Channel, Channel],
) -> None:
    client, server = ends
    started = time.monotonic()

    assert server.receive(0.2) is None
    assert 0.15 < time.monotonic() - started < BUSY * 2
    client.send("late", {})
    assert server.receive(BUSY * 5) == ("late", {})


def test_half_a_line_is_kept_for_later(ends: tuple[Channel, Channel]) -> None:
    client, server = ends
    line = client._seal.seal({"kind": "split", "body": {}})
    client._socket.sendall(line[:10])

    assert server.receive(0.1) is None
    client._socket.sendall(line[10:])
    assert server.receive(BUSY * 5) == ("split", {})


def test_the_end_of_the_other_side_is_an_error(ends: tuple[Channel, Channel]) -> None:
    client, server = ends
    client.close()

    with pytest.raises(LostError, match="closed"):
        server.receive(BUSY * 5)


def test_sending_to_somebody_who_never_reads_is_bounded(ends: tuple[Channel, Channel]) -> None:
    client, _ = ends
    started = time.monotonic()

    with pytest.raises(LostError, match="does not read"):
        client.send("big", {"data": "x" * 30_000_000}, timeout=0.5)
    assert time.monotonic() - started < BUSY * 5


def test_a_replayed_line_breaks_the_connection(ends: tuple[Channel, Channel]) -> None:
    client, server = ends
    line = client._seal.seal({"kind": "pay", "body": {}})
    client._socket.sendall(line + line)

    assert server.receive(BUSY * 5) == ("pay", {})
    with pytest.raises(LostError, match="not sealed"):
        server.receive(BUSY * 5)


@pytest.mark.parametrize(("key", "attempt"), [(b"another job", 0), (KEY, 1)])
def test_another_key_or_attempt_is_refused_by_both(listener: socket.socket, key: bytes, attempt: int) -> None:
    thread, got = accept_in_thread(listener, key, attempt)

    with pytest.raises(RefusedError) as refusal:
        Channel.connect("127.0.0.1", port_of(listener), KEY, 0, soon())
    thread.join()
    assert refusal.value.why == "key"
    assert isinstance(got[0], RefusedError)


def test_who_is_refused_is_told_the_name_of_the_job_alone() -> None:
    answers = [json.loads(ServerHandshake(KEY, 0, job).answer(b"\n")[0]) for job in ("other", "")]

    assert [{"refused": "key", "job": "other"}, {"refused": "key"}] == answers


def test_another_version_is_refused_before_its_key_matters(listener: socket.socket) -> None:
    handshake = ServerHandshake(KEY, 0)
    seal = Seal(KEY, 0, server=False)
    answer, ours = handshake.answer(seal.seal({"ddplaunch": 99, "nonce": "c"}))

    assert json.loads(answer) == {"refused": "version", "ddplaunch": 1}
    assert not ours


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"ddplaunch":99,"nonce":"00"}\n', RefusedError),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", StrangerError),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", StrangerError),
        (b"\xff\xfe\x00 no text at all", StrangerError),
        (b"[1, 2]\n", StrangerError),
        (b"x" * 70_000, StrangerError),
        (b"[" * 60_000 + b"\n", StrangerError),
        (b"", StrangerError),
    ],
)
def test_another_greeting_is_no_hubs(listener: socket.socket, said: bytes, expected: type[Exception]) -> None:
    done = threading.Event()

    def work() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(said)
            done.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(expected):
        Channel.connect("127.0.0.1", port_of(listener), KEY, 0, soon(0.5))
    done.set()
    thread.join()


@pytest.mark.parametrize(("host", "kind"), [("127.0.0.1", "refused"), ("x" * 64 + ".invalid", "not-found")])
def test_a_closed_port_is_told_from_a_name_that_cannot_exist(
    listener: socket.socket, host: str, kind: str
) -> None:
    port = port_of(listener)
    listener.close()

    with pytest.raises(UnreachableError) as error:
        Channel.connect(host, port, KEY, 0, soon())
    assert error.value.kind == kind


def test_hanging_up_at_once_is_reset(listener: socket.socket) -> None:
    def work() -> None:
        listener.accept()[0].close()

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(UnreachableError) as error:
        Channel.connect("127.0.0.1", port_of(listener), KEY, 0, soon())
    thread.join()
    assert error.value.kind == "reset"


def test_who_connects_and_says_nothing_is_dropped_at_the_deadline(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with pytest.raises(LostError, match="in time"):
            Channel.accept(connection, KEY, 0, soon(0.2))


def test_no_bit_of_a_line_can_be_changed() -> None:
    line = sealed_pair()[0].seal({"kind": "k", "body": {"a": 1}})
    for place in range(len(line) - 1):
        server = sealed_pair()[1]
        changed = bytearray(line)
        changed[place] ^= 1
        assert server.open(bytes(changed)) is None


def test_a_clients_line_cannot_be_sent_back_to_it() -> None:
    client, _ = sealed_pair()
    other = Seal(KEY, 0, server=False)
    other.nonces = client.nonces

    assert other.open(client.seal({})) is None


def test_a_silent_address_delays_no_other(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", port_of(listener)), backlog=0) as silent:
        fillers = [socket.socket() for _ in range(3)]  # whose queue is full: packets to it vanish
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        monkeypatch.setattr(protocol, "resolve", lambda host, deadline: ["127.0.0.2", "127.0.0.1"])
        thread, got = accept_in_thread(listener)

        Channel.connect("n0", port_of(listener), KEY, 0, soon(2.0)).close()

        thread.join()
        assert isinstance(got[0], Channel)
        got[0].close()
        for filler in fillers:
            filler.close()


def test_several_addresses_in_one_line_are_read_as_they_are_spelt() -> None:
    text = "n1:29400,10.0.0.5:29400,[fd00::5]:29400"
    found = endpoints.parse(text)

    assert [Endpoint("n1", 29400), Endpoint("10.0.0.5", 29400), Endpoint("fd00::5", 29400)] == found
    assert text == endpoints.to_text(found)


@pytest.mark.parametrize("text", ["", "n1", ":29400", "n1:", "n1:port", "n1:29400,"])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        endpoints.parse(text)


def can_be_bound(address: str) -> bool:
    """Whether a socket can listen there now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def test_this_machines_addresses_can_be_bound_and_are_no_loopback() -> None:
    """What is given to others is where this machine can listen, and no loopback address.

    Bridges of containers come and go beside us, and an IPv6 address that is new cannot be bound at once.
    """
    deadline = time.monotonic() + BUSY * 5
    while unbound := [address for address in endpoints.own_addresses() if not can_be_bound(address)]:
        assert time.monotonic() < deadline, unbound
        time.sleep(0.1)
    assert not [address for address in endpoints.own_addresses() if address.startswith("127.")]
    assert ("lo", "127.0.0.1") in endpoints.interfaces()


def test_an_interface_has_its_first_address_by_its_name() -> None:
    assert "127.0.0.1" == endpoints.address_of("lo")
    assert endpoints.address_of("nosuch0") is None
