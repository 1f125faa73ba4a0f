"""NCCL's RAS: what its answers say, recorded from real jobs, and whom we ask. See `ras_replies`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.agent.ras_replies import recorded, reply, serving
from tests.ports import own_port

from ddplaunch.agent.contract import Ras, RasCommunicator, RasCount, RasRank
from ddplaunch.agent.evidence import ras

LISTENER = """
import os, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as NCCL does
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(8)
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def asked(answer: bytes) -> tuple[Ras | None, str]:
    """What `ask` makes of an answer."""
    with serving(answer) as (port, _):
        return ras.ask(("127.0.0.1", port), lambda: None)


def test_of_all_kinds_those_in_which_ranks_differ_are_kept() -> None:
    heard, silence = asked(reply("behind-2.28.9.json"))
    most = [RasRank(0, "10.0.69.85", 6299), RasRank(2, "10.0.120.166", 6283), RasRank(3, "10.0.92.51", 6261)]
    counts = [
        RasCount("AllReduce", 101, 3, most),
        RasCount("AllReduce", 100, 1, [RasRank(1, "10.0.109.86", 6247)]),
    ]

    assert ("", Ras("2.28.9", 1, [RasCommunicator("f31e5874c3f25459", 4, counts)])) == (silence, heard)


@pytest.mark.parametrize("name", ["own-skips-2.28.9.json", "own-skips-2.28.9.txt"])
def test_the_rank_that_left_out_a_collective_is_behind_in_json_and_in_text(name: str) -> None:
    heard, silence = asked(reply(name))
    assert heard is not None
    (one,) = heard.communicators

    assert ("", "1200c6a294f95d9c", 3, []) == (silence, one.name, one.size, one.silent)
    assert [("AllReduce", 6, 2), ("AllReduce", 5, 1)] == [(n.op, n.count, n.size) for n in one.counts]
    assert [RasRank(2, "127.0.0.1", 513)] == one.counts[1].ranks


def test_a_call_that_has_not_come_to_the_gpu_does_not_count() -> None:
    """Rank 2 was in a broadcast that had not come to the GPU: it has one all_reduce less than the others."""
    heard, _ = asked(reply("own-other-2.28.9.json"))
    assert heard is not None

    assert [("AllReduce", 6, [0, 1]), ("AllReduce", 5, [2])] == [
        (same.op, same.count, [rank.rank for rank in same.ranks]) for same in heard.communicators[0].counts
    ]


def test_the_text_of_a_version_that_refuses_json_is_read() -> None:
    """Of many who have launched as much, the text gives the number alone. Those it names may be ahead."""
    heard, _ = asked(reply("ahead-2.26.2.txt"))
    ahead = [RasRank(12, "10.137.190.124", 323032), RasRank(13, "10.137.190.124", 323033)]
    counts = [RasCount("AllGather", 641, 2, ahead), RasCount("AllGather", 640, 30)]

    assert heard == Ras("2.26.2", 1, [RasCommunicator("fa93daea854b060b", 32, counts)])


def test_a_line_of_one_rank_has_no_list_of_ranks() -> None:
    heard, _ = asked(reply("behind-2.30.7.txt"))
    counts = [RasCount("AllReduce", 64, 7), RasCount("AllReduce", 60, 1, [RasRank(7, "node1", 1650386)])]

    assert heard == Ras("2.30.7", 1, [RasCommunicator("78db921d1c117b4a", 8, counts)])


def test_before_2_26_all_kinds_are_counted_together() -> None:
    heard, _ = asked(reply("all-kinds-2.24.3.txt"))
    assert heard is not None
    most, least = heard.communicators[0].counts

    assert ("", 6650, 26, []) == (most.op, most.count, most.size, most.ranks)
    seen = least.op, least.count, least.size, [each.rank for each in least.ranks]
    assert ("", 6649, 6, [0, 2, 3, 4, 5, 7]) == seen


@pytest.mark.parametrize("name", ["stopped-2.29.1.json", "no-comma-2.28.9.json"])
def test_a_rank_that_does_not_answer_nccl_is_named_in_every_version(name: str) -> None:
    heard, _ = asked(reply(name))
    silent = [RasRank(1, "172.16.64.245", 1524345)]

    assert heard == Ras("2.29.1", 1, [RasCommunicator("ae94423cfbb2ef4a", 2, [], silent)])


def test_a_process_that_nccl_counts_as_dead_is_named() -> None:
    """It is named also when no communicator is left. Before 2.26 the rank is a number alone."""
    assert asked(reply("dead-2.30.7.txt"))[0] == Ras("2.30.7", 0, [], ["process 3748990 on node1"])

    old, _ = asked(reply("stopped-2.24.3.txt"))
    assert old is not None
    assert (["process 3487984 on 172.16.64.213"], [RasRank(21)]) == (old.dead, old.communicators[0].silent)

    gone, _ = asked(reply("incomplete-2.30.7.txt"))
    assert gone is not None
    assert ([], [RasRank(7, "node1", 3748990)]) == (gone.dead, gone.communicators[0].silent)


def test_a_communicator_that_is_torn_down_has_no_counts() -> None:
    text, _ = asked(reply("torn-down-2.24.3.txt"))
    assert text == Ras("2.24.3", 9, [RasCommunicator("9e17999afaa87dbb", 32)])

    finalized = recorded("behind-2.30.7.txt").replace("  RUNNING", " FINALIZE")
    counted, _ = asked(finalized.encode())
    assert counted == Ras("2.30.7", 1, [RasCommunicator("78db921d1c117b4a", 8)])

    aborted = recorded("behind-2.28.9.json").replace('"abort_flag": false', '"abort_flag": true', 1)
    json_, _ = asked(aborted.encode())
    assert json_ == Ras("2.28.9", 1, [RasCommunicator("f31e5874c3f25459", 4)])


def test_ranks_that_no_communicator_of_this_size_can_have_are_dropped() -> None:
    heard, _ = asked(reply("invented-2.27.3.txt") + b" [process information not found]\n")
    assert heard is not None

    assert [("b3398875b8b2a063", [1]), ("93d7000200000001", [])] == [
        (each.name, [rank.rank for rank in each.silent]) for each in heard.communicators
    ]


def test_a_long_list_of_ranks_becomes_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_NAMED", 2)
    heard, _ = asked(reply("behind-2.28.9.json"))
    assert heard is not None

    assert [(3, 0), (1, 1)] == [(each.size, len(each.ranks)) for each in heard.communicators[0].counts]


def test_nccl_is_asked_once_and_gets_a_second_for_silent_ranks() -> None:
    """Communicators that are in order are only counted."""
    with serving(reply("ok-2.26.2.txt")) as (port, questions):
        assert (Ras("2.26.2", 1), "") == ras.ask(("127.0.0.1", port), lambda: None)

        assert questions == [b"timeout 1\nset format json\nverbose status\n"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b'OK\nOK\n{"communicators": [1]}\n',
        reply("behind-2.28.9.json")[:900],
    ],
    ids=["nothing", "HTTP", "other JSON", "cut off"],
)
def test_an_answer_of_anybody_else_or_half_of_one_is_not_believed(answer: bytes) -> None:
    assert asked(answer) == (None, "NCCL RAS: an answer that cannot be read")


def test_a_stopped_rank_is_waited_for_no_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped rank accepts the connection, and never reads. Deaths are noted meanwhile."""
    monkeypatch.setattr(ras, "_WAIT", 0.1)
    looks: list[int] = []
    with serving(b"OK\n", ends=False) as (port, _):
        heard = ras.ask(("127.0.0.1", port), lambda: looks.append(1))

    assert heard == (None, "NCCL RAS: no whole answer in 0.1 s")
    assert looks


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_WAIT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        drip = threading.Thread(target=_drip, args=[server])
        drip.start()
        heard = ras.ask(("127.0.0.1", server.getsockname()[1]), lambda: None)
        drip.join(20)

    assert heard == (None, "NCCL RAS: no whole answer in 0.1 s")


def _drip(server: socket.socket) -> None:
    """Send a byte every 2 ms until the other side closes, 10 s at most."""
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        for _ in range(5000):
            connection.sendall(b"x")
            time.sleep(0.002)


def test_an_answer_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_LONGEST", 1000)
    assert asked(b"x" * 5000) == (None, "NCCL RAS: an answer without an end")


def test_a_rank_that_has_ended_since_gives_no_answer() -> None:
    with serving(b"") as (port, _):
        pass
    heard, silence = ras.ask(("127.0.0.1", port), lambda: None)

    assert (None, True) == (heard, silence.startswith("NCCL RAS: "))


# --- whom to ask


@contextlib.contextmanager
def listener(port: int, named: str = "127.0.0.1:{}") -> Iterator[tuple[int, int]]:
    """A process that listens as NCCL does; yields its pid and port."""
    env = {**os.environ, "NCCL_RAS_ADDR": named.format(port)}
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(port)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@pytest.fixture(name="port")
def _port() -> int:
    return own_port()


def test_any_of_several_ranks_on_one_port_may_answer(port: int) -> None:
    with listener(port) as (first, _), listener(port) as (second, _):
        assert ras.address([first, second]) == ("127.0.0.1", port)


def test_a_port_that_another_job_shares_is_not_asked(port: int) -> None:
    with listener(port) as (ours, _), listener(port):
        assert ras.address([ours]) is None


def test_a_rank_whose_nccl_does_not_listen_is_not_asked(port: int) -> None:
    with listener(0, f"127.0.0.1:{port}") as (ours, _), listener(port):
        assert ras.address([ours]) is None
    assert ras.address([os.getpid()]) is None
