"""Ports: found, held, and who holds them. Real sockets, real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.checks.make import make_context
from tests.ports import own_port

from ddplaunch.agent.checks import port
from ddplaunch.agent.contract import Env, Status
from ddplaunch.agent.platforms.holder import holder_of_port
from ddplaunch.agent.system import ports

LISTEN = "import socket; s = socket.create_server(('127.0.0.1', {})); print(1, flush=True); s.accept()"

GREET = """
import socket
s = socket.create_server(("127.0.0.1", {}))
print(1, flush=True)
while True:
    s.accept()[0].sendall(b'{{"ddplaunch":1,"nonce":"00"}}')
"""
"""As a gate of ddplaunch does that holds its port."""


@pytest.mark.parametrize("avoid", [(32768, 60999), (1024, 30000), (15000, 65535), (0, 0)])
def test_a_job_tries_ports_of_its_own_and_none_that_the_kernel_hands_out(
    avoid: tuple[int, int],
) -> None:
    found = ports.sequence(b"a", avoid)

    assert found == ports.sequence(b"a", avoid) != ports.sequence(b"b", avoid)
    assert all(10000 <= number < 32768 and not avoid[0] <= number <= avoid[1] for number in found)


@pytest.mark.parametrize("everything", [(1024, 65535), (10000, 65535)])
def test_where_all_ports_are_the_kernels_the_sequence_is_as_everywhere(everything: tuple[int, int]) -> None:
    """Machines that open many connections are often set up so; a job starts there too."""
    assert ports.sequence(b"a", (1, 1)) == ports.sequence(b"a", everything)


def test_two_jobs_with_one_sequence_get_different_ports() -> None:
    with ports.first_free(None, "j", 0, b"k", "test") as first:  # noqa: SIM117 - the first must hold its port
        with ports.first_free(None, "j", 0, b"k", "test") as second:
            assert ports.number(first) != ports.number(second)


def test_a_port_whose_last_connection_is_in_time_wait_is_free() -> None:
    number = own_port()
    with ports.listen("127.0.0.1", number) as listener:
        client = socket.create_connection(("127.0.0.1", number))
        accepted, _ = listener.accept()
        accepted.close()
        client.close()

    ports.listen(None, number).close()


@pytest.mark.parametrize("host", [None, "127.0.0.1", "::1"])
def test_a_listener_on_any_address_holds_the_port(host: str | None) -> None:
    """A listener on one address is enough to keep the store, which binds all of them, from starting."""
    number = own_port()
    try:
        holder = ports.listen(host, number)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with holder, pytest.raises(OSError, match="in use"):
        ports.listen(None, number)


@pytest.fixture(name="number")
def _number() -> int:
    return own_port()


def test_the_holder_of_a_port_is_named_with_command_user_and_job(number: int) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "771", Env.JOB: ""}
    words = [sys.executable, "-c", LISTEN.format(number)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holder = holder_of_port(number)
        process.kill()

    assert holder is not None
    assert holder.pid == process.pid
    assert holder.user_id == os.getuid()
    assert holder.text.startswith(f"pid {process.pid} ({sys.executable} -c")
    assert holder.text.endswith("Slurm job 771)")


def test_nobody_holds_a_free_port(number: int) -> None:
    assert holder_of_port(number) is None


@pytest.mark.parametrize(("name", "code"), [("other", "store-shared"), ("trial", "port-in-use")])
def test_the_rendezvous_of_another_job_is_told_from_a_leftover_of_this_one(
    tmp_path: Path, number: int, name: str, code: str
) -> None:
    words = [sys.executable, "-c", GREET.format(number)]
    environment = {**os.environ, Env.JOB: name}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        result = port.check_port(make_context(tmp_path, master_port=number))
        process.kill()

    assert (result.status, result.code) == (Status.FAIL, code)
    assert f"port {number} is held by pid {process.pid} (" in result.observed
    assert ("of ddplaunch, of another job" in result.observed) == (code == "store-shared")


def test_a_free_master_port_is_kept_while_the_gate_goes_on(tmp_path: Path, number: int) -> None:
    context = make_context(tmp_path, master_port=number)
    result = port.check_port(context)

    assert result.status == Status.PASS
    assert context.master is not None
    with context.master, pytest.raises(OSError, match="in use"):
        ports.listen(None, number)


def test_an_ephemeral_master_port_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = ports.number(listener)
    context = make_context(tmp_path, master_port=number)
    result = port.check_port(context)
    assert context.master is not None
    context.master.close()

    assert result.status == Status.UNKNOWN
    assert "hands out" in result.observed


def test_no_other_node_holds_the_master_port(tmp_path: Path) -> None:
    context = make_context(tmp_path, node=1, master_port=29500)

    assert port.check_port(context).status == Status.PASS
    assert context.master is None
