"""A name server's words, from one that speaks on this machine."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Callable

import pytest
from tests.agent.gate.jobs import make_plan

from ddplaunch.agent.checks import network
from ddplaunch.agent.checks.context import Context
from ddplaunch.agent.contract import Status
from ddplaunch.agent.platforms import dns

NAME = "run-0.run.team.svc.cluster.local"
Answers = Callable[[bytes, int], bytes]


def question(packet: bytes) -> tuple[bytes, int]:
    """Its name as it was sent, and the kind of record."""
    end = packet.index(b"\0", 12) + 1
    return packet[12:end], struct.unpack(">H", packet[end : end + 2])[0]


def reply(packet: bytes, code: int, *records: tuple[int, bytes]) -> bytes:
    """To this question, with these records (kind, data) of its name."""
    name, kind = question(packet)
    head = packet[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    body = b"".join(
        b"\xc0\x0c" + struct.pack(">HHIH", each, 1, 30, len(data)) + data for each, data in records
    )
    return head + name + struct.pack(">HH", kind, 1) + body


class Server:
    """Answers each packet by what `says` makes of it; nothing where that is empty."""

    def __init__(self) -> None:
        self.says: Callable[[bytes], bytes] = lambda packet: b""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def ask(self, name: str = NAME, seconds: float = 3.0) -> dns.DnsAnswer:
        return dns.ask(name, time.monotonic() + seconds, "127.0.0.1", self.port)

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            packet, sender = self._socket.recvfrom(4096)
            if not packet:
                return
            answer = self.says(packet)
            if answer:
                self._socket.sendto(answer, sender)


@pytest.fixture(name="server")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_an_address_of_either_family_is_found_behind_another_name(server: Server) -> None:
    four, six = socket.inet_aton("10.1.0.4"), socket.inet_pton(socket.AF_INET6, "fd00::4")
    server.says = lambda packet: reply(packet, 0, (1, four), (1, socket.inet_aton("10.1.0.9")))
    assert ("found", ["10.1.0.4", "10.1.0.9"]) == server.ask()[:2]

    server.says = lambda packet: reply(packet, 0, *([(28, six)] if question(packet)[1] == 28 else []))
    assert ("found", ["fd00::4"]) == server.ask()[:2]


def test_a_name_is_asked_for_without_any_suffix(server: Server) -> None:
    heard: list[bytes] = []

    def answer_to(packet: bytes) -> bytes:
        heard.append(question(packet)[0])
        return reply(packet, 3)

    server.says = answer_to
    server.ask()
    assert {b"\x05run-0\x03run\x04team\x03svc\x07cluster\x05local\x00"} == set(heard)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (3, "no such name", "127.0.0.1 says NXDOMAIN"),
        (0, "no address", "127.0.0.1 knows the name, and no address of it"),
        (2, "failing", "127.0.0.1 says SERVFAIL"),
        (5, "failing", "127.0.0.1 says REFUSED"),
    ],
)
def test_a_server_has_four_ways_not_to_know(server: Server, code: int, status: str, said: str) -> None:
    server.says = lambda packet: reply(packet, code)
    answer = server.ask()
    assert (status, said) == (answer.status, answer.text)


def test_a_lost_question_is_sent_again_and_a_silent_server_given_up(server: Server) -> None:
    assert "silent" == server.ask(seconds=0.3).status
    server.says = lambda packet: b"\0\0" + b"x" * 20  # somebody else's
    assert "silent" == server.ask(seconds=0.3).status
    seen: list[bytes] = []

    def second(packet: bytes) -> bytes:
        seen.append(packet)
        return reply(packet, 3) if len(seen) > 1 else b""

    server.says = second
    assert "no such name" == server.ask(seconds=5.0).status
    assert "silent" == dns.ask(NAME, time.monotonic() + 0.3, "127.0.0.1", 1).status


@pytest.mark.parametrize("cut", range(12, 60, 12))
def test_an_answer_that_is_cut_off_is_no_reason_to_fail(server: Server, cut: int) -> None:
    whole = (1, socket.inet_aton("10.1.0.4"))
    server.says = lambda packet: reply(packet, 0, whole)[:cut]
    assert server.ask(seconds=0.5).status in ("no address", "found")


def test_the_servers_are_asked_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text("search x\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n")
    assert ["10.96.0.10", "fd00::a"] == dns.servers(str(path))
    assert [] == dns.servers(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("node", "code", "status", "verdict"),
    [(0, 3, Status.FAIL, "dns-not-found"), (0, 2, Status.FAIL, "dns-unanswered"), (1, 3, Status.UNKNOWN, "")],
)
def test_of_pods_without_a_record_node_0_alone_is_missed(
    server: Server, monkeypatch: pytest.MonkeyPatch, node: int, code: int, status: str, verdict: str
) -> None:
    server.says = lambda packet: reply(packet, code)
    real = partial(dns.ask, server="127.0.0.1", port=server.port)
    monkeypatch.setattr(dns, "ask", real)
    plan = make_plan(names=[NAME, NAME.replace("run-0", "run-1")], platform="kubernetes")
    result = network.check_service(Context(plan, "", node, 0, b"k", again=True))

    assert (status, verdict) == (result.status, result.code)


def test_names_of_machines_are_no_names_of_pods() -> None:
    result = network.check_service(Context(make_plan(names=["n1", "n2"]), "", 0, 0, b"k"))
    assert (Status.PASS, "no Service names the nodes") == (result.status, result.observed)
