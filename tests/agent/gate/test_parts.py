"""The parts of a gate on their own: table, responder, probe, and who a stranger is."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Callable

import pytest
from tests.busy import BUSY
from tests.ports import own_port

from ddplaunch.agent.checks import run
from ddplaunch.agent.contract import CheckResult, MeshTask, Status
from ddplaunch.agent.gate import probe
from ddplaunch.agent.gate.probe import Responder
from ddplaunch.agent.system import ports
from ddplaunch.agent.transport import strangers

KEY = b"key"


def test_the_table_is_aligned_and_has_colours_only_when_asked() -> None:
    results = [
        CheckResult("names", Status.PASS, "n0 -> 10.0.0.5"),
        CheckResult("shm", Status.FAIL, "64 MiB", "1.0 GiB", "make it larger", "shm-too-small"),
        CheckResult("interpreter", Status.UNKNOWN, "did not answer"),
    ]

    assert run.rows(results, colour=False) == [
        "  ok    names        n0 -> 10.0.0.5",
        "  FAIL  shm          64 MiB",
        "                     wanted: 1.0 GiB",
        "                     hint: make it larger",
        "  ?     interpreter  did not answer",
    ]
    assert "\033[31;1mFAIL\033[0m" in run.rows(results, colour=True)[1]


@pytest.fixture(name="responder")
def _responder() -> Iterator[tuple[Responder, int]]:
    """A responder and its port."""
    responder = Responder(KEY, 0, "trial")
    listener = ports.listen("127.0.0.1", 0)
    port = ports.number(listener)
    responder.listen(listener)
    yield responder, port
    responder.close(listener)


def outcome(port: int, key: bytes = KEY, attempt: int = 0) -> tuple[str, str]:
    """(outcome, detail) of one probe of a port here."""
    (result,) = probe.run(1, [MeshTask(0, "127.0.0.1", port, "responder")], key, attempt)
    return result.outcome, result.detail


def test_a_hundred_peers_are_answered_in_their_order(responder: tuple[Responder, int]) -> None:
    tasks = [MeshTask(peer, "127.0.0.1", responder[1], "responder") for peer in range(100)]
    results = probe.run(1, tasks, KEY, 0)

    assert [(peer, "ok") for peer in range(100)] == [(result.peer, result.outcome) for result in results]


@pytest.mark.parametrize(("key", "attempt"), [(b"another", 0), (KEY, 1)])
def test_another_jobs_node_is_not_our_own(responder: tuple[Responder, int], key: bytes, attempt: int) -> None:
    found, detail = outcome(responder[1], key, attempt)

    assert found == "shared"
    assert detail == "it is ddplaunch of another job, or of another attempt, called 'trial'"


def test_a_path_on_which_packets_get_lost_is_open_and_the_loss_is_told() -> None:
    responder = Responder(KEY, 0)
    listener = ports.listen("127.0.0.1", 0)
    port = ports.number(listener)
    late = threading.Timer(probe.SECONDS + 0.2, responder.listen, [listener])
    late.start()  # after the first try has given up
    found = outcome(port)
    late.join()
    responder.close(listener)

    assert ("ok", "packets are lost, 1 of 5 tries failed") == found


def test_garbage_does_not_harm_a_responder(responder: tuple[Responder, int]) -> None:
    silent = socket.create_connection(("127.0.0.1", responder[1]))
    with socket.create_connection(("127.0.0.1", responder[1])) as rude, contextlib.suppress(OSError):
        rude.sendall(b"\x00" * 100_000)

    assert ("ok", "") == outcome(responder[1])
    silent.close()


def test_a_responder_outlives_a_lack_of_files(responder: tuple[Responder, int]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    early = socket.socket()
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        early.connect(("127.0.0.1", responder[1]))
        time.sleep(0.3)  # it accepts in vain meanwhile, which nothing shows
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)

    assert ("ok", "") == outcome(responder[1])
    early.close()


def test_a_port_can_be_bound_as_soon_as_its_responder_is_closed() -> None:
    """The moment `close` returns, the port can be bound: torch's store comes next."""
    responder, port = Responder(KEY, 0), own_port()
    for _ in range(20):
        listener = ports.listen(None, port)
        responder.listen(listener)
        assert outcome(port)[0] == "ok"
        responder.close(listener)
        ports.listen(None, port).close()


def serve(answer: Callable[[socket.socket], None]) -> tuple[socket.socket, int]:
    """A listener that gives every connection to `answer`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    answer(connection)

    threading.Thread(target=work, daemon=True).start()
    return listener, listener.getsockname()[1]


def stop(listener: socket.socket) -> None:
    """Wakes the accepting thread."""
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize(
    ("answer", "expected", "detail"),
    [
        (lambda c: c.sendall(b"SSH-2.0-OpenSSH\r\n"), "stranger", "it is an SSH server"),
        (lambda c: c.sendall(b"who are you\n"), "stranger", "it says b'who are you\\n'"),
        (lambda c: c.close(), "reset", "closed"),
    ],
)
def test_what_answers_in_a_peers_place_is_described(
    answer: Callable[[socket.socket], None], expected: str, detail: str
) -> None:
    listener, port = serve(answer)
    found = outcome(port)
    stop(listener)

    assert found[0] == expected
    assert detail in found[1]


def test_a_closed_port_is_refused() -> None:
    assert outcome(own_port())[0] == "refused"


def test_a_silent_stranger_costs_no_more_than_the_seconds_given() -> None:
    listener, port = serve(lambda c: time.sleep(3))
    started = time.monotonic()
    said = strangers.ask("127.0.0.1", port, 0.4)
    stop(listener)

    assert (said, strangers.describe(said)) == (b"", "")
    assert time.monotonic() - started < BUSY * 2


@pytest.mark.parametrize(
    ("said", "clause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-x", "SSH"),
        (b"\x15\x03\x01\x00\x02", "TLS"),
        (b"220 mail ready", "mail or FTP"),
        (b'{"ddplaunch":1}', "of ddplaunch"),
        (b"1pdd", "TCPStore of another training job"),
        (b"hello", "it says b'hello'"),
    ],
)
def test_known_greetings_are_named_and_others_shown(said: bytes, clause: str) -> None:
    assert clause in strangers.describe(said)
    assert strangers.is_job(said) == (clause in ("of ddplaunch", "TCPStore of another training job"))


@pytest.mark.slow
def test_torchs_own_store_is_recognized_and_not_harmed_by_the_question() -> None:
    import torch.distributed

    port = own_port()
    store = torch.distributed.TCPStore(  # type: ignore[attr-defined]  # torch does not re-export it
        "127.0.0.1", port, 1, True, wait_for_workers=False
    )

    said = strangers.ask("127.0.0.1", port, 2.0)
    assert "TCPStore" in strangers.describe(said)
    assert strangers.is_job(said)
    store.set("still", "here")
    assert store.get("still") == b"here"


def test_a_path_is_tried_when_it_is_its_turn_and_the_wait_is_not_its() -> None:
    responder, listener = Responder(b"key", 0), ports.listen("127.0.0.1", 0)
    number = ports.number(listener)
    responder.listen(listener)
    try:
        started = time.monotonic()
        tasks = [MeshTask(0, "127.0.0.1", number, "responder", after) for after in (0.0, 3.0)]
        results = probe.run(1, tasks, b"key", 0)
    finally:
        responder.close(listener)

    assert ["ok", "ok"] == [result.outcome for result in results]
    assert time.monotonic() - started >= 3.0
    assert results[1].seconds < 3.0


def test_a_path_that_opens_while_it_is_tried_is_open() -> None:
    """A refusal may pass as silence may: rules of a firewall arrive, a listener comes up."""
    number = own_port()
    responder = Responder(b"key", 0)
    late = threading.Timer(1.0, lambda: responder.listen(ports.listen("127.0.0.1", number)))
    late.start()
    (result,) = probe.run(1, [MeshTask(0, "127.0.0.1", number, "responder")], b"key", 0)
    late.join()
    responder.close(next(iter(responder._threads)))

    assert "ok" == result.outcome
    assert result.detail.startswith("refused for ")
