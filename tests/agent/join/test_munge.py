"""The key's way from node 0 to its own user's processes, and to no others: a real munged, real users."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from tests.agent.gate.jobs import wait_for
from tests.ports import own_port

from ddplaunch.agent.join import key
from ddplaunch.agent.join.spot import CannotJoinError, Spot
from ddplaunch.agent.platforms import slurm
from ddplaunch.agent.system import ports

JOB, KEY = "slurm 7.0", "the key of this job"
STRANGER = 65534


class Desk:
    """Node 0's, in this process; `said` are its lines."""

    def __init__(self) -> None:
        self.port = own_port()
        self.said: list[str] = []
        threading.Thread(
            target=key.serve_key, args=(self.port, JOB, KEY, self.said.append), daemon=True
        ).start()

    def ask(self, job: str = JOB, seconds: float = 20.0) -> str:
        """As node 1 of `job`."""
        return key.ask_node_zero(Spot(1, 2, "127.0.0.1", occasion=job), self.port, seconds, self.said.append)

    def answer(self, line: bytes) -> bytes:
        """What it sends to whoever says this."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            try:
                connection.sendall(line)
                return connection.makefile("rb").readline()
            except ConnectionResetError:  # it hung up with some of our words unread
                return b""

    def is_up(self) -> bool:
        """Whether it listens by now."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(name="desk")
def _desk(munged: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(slurm, "munge_socket", lambda _: str(munged))
    wait_for(munged.exists)
    desk = Desk()
    wait_for(desk.is_up)
    return desk


def as_stranger(munged: Path, words: list[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What another user of this machine can do with MUNGE."""
    return subprocess.run(
        [*words, f"--socket={munged}"], input=text, capture_output=True, user=STRANGER, check=False
    )


def test_our_own_user_and_job_get_the_key(desk: Desk) -> None:
    assert KEY == desk.ask()


def test_another_job_of_ours_reads_that_it_came_to_the_wrong_node(desk: Desk) -> None:
    with pytest.raises(CannotJoinError, match=r"node 0 \(127\.0\.0\.1\) gave no key"):
        desk.ask("slurm 8.0")
    wait_for(lambda: any("a process of another job, 'slurm 8.0'" in line for line in desk.said))


def test_a_stranger_with_a_credential_of_his_own_gets_no_key(desk: Desk, munged: Path) -> None:
    request = json.dumps({"ask": JOB, "nonce": "1"}).encode()
    credential = as_stranger(munged, ["munge"], request).stdout

    assert credential.startswith(b"MUNGE:")
    assert b"" == desk.answer(credential)
    wait_for(lambda: any(f"of user {STRANGER}, not of {os.geteuid()}" in line for line in desk.said))


@pytest.mark.parametrize("line", [b"give me the key\n", b"MUNGE:AwQDAAC=:\n", b"\n", b"x" * 20000 + b"\n"])
def test_noise_gets_no_key_and_ends_nothing(desk: Desk, line: bytes) -> None:
    assert b"" == desk.answer(line)
    assert KEY == desk.ask()


def test_an_answer_that_was_overheard_cannot_be_opened(desk: Desk, munged: Path) -> None:
    """It is sealed for our user alone; and a request is good for once."""
    request = key._sealed({"ask": JOB, "nonce": "1"}, str(munged))
    answer = desk.answer(request)

    assert answer.startswith(b"MUNGE:")
    assert KEY.encode() not in answer
    assert as_stranger(munged, ["unmunge"], answer).returncode != 0
    assert b"" == desk.answer(request)


def test_a_stranger_in_node_zeros_place_is_found_out(munged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "munge_socket", lambda _: str(munged))
    wait_for(munged.exists)
    listener = ports.listen(None, 0)

    def deceive() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.makefile("rb").readline()
            body = json.dumps({"key": "mine", "nonce": "?"}).encode()
            connection.sendall(as_stranger(munged, ["munge"], body).stdout)

    thread = threading.Thread(target=deceive, daemon=True)
    thread.start()
    with pytest.raises(CannotJoinError, match=f"a process of user {STRANGER}"):
        key.ask_node_zero(Spot(1, 2, "127.0.0.1"), ports.number(listener), 20.0, print)
    thread.join()
    listener.close()


def test_a_node_zero_that_never_comes_is_a_verdict(munged: Path) -> None:
    with pytest.raises(key.NoKeyError) as caught:
        key.ask_node_zero(Spot(1, 2, "127.0.0.2", occasion=JOB), own_port(), 1.0, print)

    assert ("master-is-loopback", [1]) == (caught.value.verdict.code, caught.value.verdict.nodes)


def test_a_taken_port_of_the_desk_is_a_verdict_before_anything_starts(munged: Path) -> None:
    with ports.listen(None, 0) as taken:
        port = ports.number(taken)
        with pytest.raises(key.NoKeyError) as caught:
            key.check_key_port(port)

    verdict = caught.value.verdict
    assert ("port-in-use", [0]) == (verdict.code, verdict.nodes)
    assert f"port {port} is held by pid {os.getpid()} (" in verdict.sentence
    assert "another --gate-port" in verdict.hint


def test_a_free_port_of_the_desk_is_not_kept() -> None:
    port = own_port()

    key.check_key_port(port)

    ports.listen(None, port).close()
