"""Real hub, real gates, real faults, on this machine. `test_network` has those that need several hosts."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.jobs import COME, Job, make_plan, wait_for
from tests.busy import BUSY
from tests.ports import own_port

from ddplaunch.agent.contract import Env, Exit, Phase
from ddplaunch.agent.system import ports
from ddplaunch.agent.transport.protocol import Channel, ProtocolError


def test_healthy_nodes_agree_on_one_address_and_one_free_port(job: Job) -> None:
    plan = make_plan(nodes=3)
    job.hub(plan)
    gates = [job.gate(plan, node) for node in range(3)]

    assert [Exit.OK] * 3 == [gate.wait() for gate in gates]
    assert job.agreed(0) == job.agreed(1) == job.agreed(2)
    assert job.agreed(0).master_addr == "127.0.0.1"
    low, high = ports.ephemeral_range()
    assert not low <= job.agreed(0).master_port <= high
    ports.listen(None, job.agreed(0).master_port).close()
    wait_for(lambda: job.status.phase == Phase.RENDEZVOUS)
    assert "gate passed" in gates[1].output
    assert job.bundle.mesh == []  # nothing failed, or was odd
    wanted = {"0": {"1", "2", "master"}, "1": {"0", "2", "master"}, "2": {"0", "1", "master"}}
    assert {node: set(peers) for node, peers in job.bundle.passed.items()} == wanted


def test_skipped_checks_are_not_run_and_a_master_port_is_found_all_the_same(job: Job) -> None:
    plan = make_plan(nodes=1, gate={"skip": ["port", "mesh", "cpu", "names"]}, command=["train.py"])
    job.hub(plan)
    gate = job.gate(plan, 0)

    assert gate.wait() == Exit.OK
    assert not {"port", "mesh", "cpu", "names"} & {line.split()[1] for line in gate.output.splitlines()[1:-1]}
    assert job.agreed(0).master_port > 0


def test_a_gate_that_is_switched_off_only_agrees(job: Job) -> None:
    plan = make_plan(gate={"enabled": False}, command=["nosuch.py"], resources={"shm": 1 << 50})
    job.hub(plan)
    gates = [job.gate(plan, node) for node in range(2)]

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates]
    assert job.agreed(0) == job.agreed(1)
    assert job.bundle.mesh == []


@pytest.fixture(name="taken")
def _taken() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A port that another process listens on, outside of the ephemeral range, and that process."""
    port = own_port()
    code = "import socket, sys, time; s = socket.create_server(('', int(sys.argv[1]))); print(1, flush=True)"
    words = [sys.executable, "-c", f"{code}; time.sleep(120)", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield port, process
        process.kill()


@pytest.mark.fault("port-in-use")
def test_the_master_ports_holder_is_named_to_all(
    job: Job, taken: tuple[int, subprocess.Popen[bytes]]
) -> None:
    port, holder = taken
    plan = make_plan(master_port=port)
    job.hub(plan)
    gates = [job.gate(plan, node) for node in range(2)]
    codes = [gate.wait(10) for gate in gates]

    assert [Exit.NODE_AT_FAULT] * 2 == codes
    assert job.verdict.code == "port-in-use"
    assert job.verdict.nodes == [0]
    assert f"port {port} is held by pid {holder.pid} ({sys.executable}" in job.verdict.sentence
    assert all(job.verdict.sentence.split(";")[0] in " ".join(gate.output.split()) for gate in gates)


@pytest.mark.fault("port-in-use")
def test_a_hub_that_cannot_listen_ends_at_once_and_names_the_holder(
    job: Job, taken: tuple[int, subprocess.Popen[bytes]]
) -> None:
    port, holder = taken
    hub = job.hub(make_plan(), address=None, port=port)

    assert hub.wait(5) == Exit.NODE_AT_FAULT
    assert job.verdict.code == "port-in-use"
    assert str(holder.pid) in job.verdict.sentence
    assert job.status.exit_code == Exit.NODE_AT_FAULT
    assert "port-in-use" in hub.output


def test_a_freed_gate_port_is_waited_for(job: Job, taken: tuple[int, subprocess.Popen[bytes]]) -> None:
    """An earlier attempt's hub may not have ended yet: it is waited for, and the log says for whom."""
    port, holder = taken
    waiting = f"waiting for port {port}, held by pid {holder.pid} ({sys.executable}"

    def free() -> None:
        wait_for(lambda: hasattr(job, "hub_process") and waiting in job.hub_process.output)
        holder.kill()

    freeing = threading.Thread(target=free)
    freeing.start()
    plan = make_plan(nodes=1)
    job.hub(plan, address=None, port=port)
    freeing.join()

    assert Exit.OK == job.gate(plan, 0).wait()
    assert any(event.text.startswith(waiting) for event in job.bundle.events)


SERVE_HTTP = (
    "from http.server import *; HTTPServer(('127.0.0.1', {}), BaseHTTPRequestHandler).serve_forever()"
)


@pytest.mark.whole
@pytest.mark.fault("stranger-listens")
def test_a_stranger_in_the_hubs_place_is_described(job: Job) -> None:
    port = own_port()
    with subprocess.Popen(
        [sys.executable, "-c", SERVE_HTTP.format(port)], stderr=subprocess.DEVNULL
    ) as stranger:
        wait_for(lambda: reachable(port))
        gate = job.gate(make_plan(gate={"timeout": 6.0}), 1, hub=f"127.0.0.1:{port}")
        code = gate.wait(15)
        stranger.kill()

    assert code == Exit.NODE_AT_FAULT
    assert "stranger-listens: " in gate.output
    assert "HTTP" in gate.output


@pytest.mark.whole
def test_a_gate_that_is_dropped_comes_again_once_a_second_until_its_deadline(job: Job) -> None:
    came: list[float] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(ProtocolError):  # at its deadline it is in a hurry
                    Channel.accept(connection, job.key, 0, time.monotonic() + BUSY * 5).close()
                    came.append(time.monotonic())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        gate = job.gate(make_plan(gate={"timeout": 4.0}), 1, hub=f"127.0.0.1:{listener.getsockname()[1]}")
        assert gate.wait(20) == Exit.NODE_AT_FAULT

    assert len(came) >= 2
    assert came[-1] - came[0] > 0.5 * (len(came) - 1)
    assert "trying again" in gate.output


def reachable(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.whole
@pytest.mark.fault("store-shared")
def test_the_hub_of_another_attempt_is_told_from_the_jobs_own(job: Job) -> None:
    plan = make_plan()
    job.hub(plan, attempt=1)
    gate = job.gate(plan, 1)

    assert gate.wait(15) == Exit.NODE_AT_FAULT
    assert "store-shared" in gate.output
    assert "another attempt" in " ".join(gate.output.split())


@pytest.mark.fault("port-refused")
def test_a_gate_without_a_hub_says_at_its_deadline_what_it_met(job: Job) -> None:
    gate = job.gate(make_plan(gate={"timeout": 3.0}), 0, hub=f"127.0.0.1:{own_port()}")

    assert gate.wait(10) == Exit.NODE_AT_FAULT
    assert "port-refused: " in gate.output


def test_a_hub_that_comes_late_is_waited_for(job: Job) -> None:
    plan = make_plan(nodes=1)
    port = own_port()
    gate = job.gate(plan, 0, hub=f"127.0.0.1:{port}")
    gate.says("gate of trial")
    job.hub(plan, port=port)

    assert gate.wait(10) == Exit.OK


@pytest.mark.fault("node-missing")
def test_a_node_that_never_comes_is_named_at_the_deadline_to_all(job: Job) -> None:
    plan = make_plan(nodes=3, gate={"timeout": COME})
    hub = job.hub(plan)
    gates = [job.gate(plan, node) for node in (0, 2)]
    codes = [gate.wait(15) for gate in gates]

    assert [Exit.NODE_AT_FAULT] * 2 == codes
    assert (job.verdict.code, job.verdict.nodes) == ("node-missing", [1])
    opened, (told,) = job.bundle.started, [each.at for each in job.bundle.events if each.kind == "verdict"]
    assert COME <= told - opened < COME + BUSY * 2.0
    assert "waiting for node 1" in gates[0].output
    assert hub.wait(5) == Exit.NODE_AT_FAULT


@pytest.mark.whole
@pytest.mark.fault("node-missing")
def test_a_node_that_vanishes_is_missed_and_known_to_have_been_there(job: Job) -> None:
    plan = make_plan(gate={"timeout": 1.5 * COME})  # in which both come, one after the other
    hub = job.hub(plan)
    gone = job.gate(plan, 1)
    hub.says("node 1 checked in")
    gone.process.kill()
    hub.says("node 1 went away")
    gate = job.gate(plan, 0)

    assert gate.wait(20) == Exit.NODE_AT_FAULT
    assert (job.verdict.code, job.verdict.nodes) == ("node-missing", [1])
    assert "node 1 checked in and then went away" in job.verdict.sentence


def test_a_gate_that_is_started_again_takes_its_place(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    first = job.gate(plan, 1, name="first")
    hub.says("node 1 checked in")
    first.process.kill()
    hub.says("node 1 went away")
    gates = [job.gate(plan, node) for node in range(2)]

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates]


@pytest.mark.fault("rank-duplicate")
def test_two_gates_with_one_index_are_one_verdict_for_both(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    first = job.gate(plan, 0)
    hub.says("node 0 checked in")
    second = job.gate(plan, 0, name="second")

    assert [Exit.MISCONFIGURED] * 2 == [first.wait(10), second.wait(10)]
    assert (job.verdict.code, job.verdict.nodes) == ("rank-duplicate", [0])


@pytest.mark.fault("world-size-differs")
def test_a_node_that_was_started_for_another_size_is_named(job: Job) -> None:
    plan = make_plan(nodes=3)
    job.hub(plan)
    gates = [job.gate(plan, 0), job.gate(make_plan(nodes=5), 1), job.gate(plan, 2)]

    assert [Exit.MISCONFIGURED] * 3 == [gate.wait() for gate in gates]
    assert (job.verdict.code, job.verdict.nodes) == ("world-size-differs", [1])
    assert job.verdict.sentence == "node 1 was started for 5 nodes, the others for 3 nodes"


@pytest.mark.fault("memory-too-small")
def test_a_demand_for_more_than_the_node_has_is_refused(job: Job) -> None:
    plan = make_plan(nodes=1, resources={"memory": 1 << 50})
    job.hub(plan)

    assert job.gate(plan, 0).wait() == Exit.MISCONFIGURED
    assert job.verdict.code == "memory-too-small"


@pytest.mark.whole
def test_a_signal_for_the_training_is_nothing_to_a_gate(job: Job) -> None:
    _, gate = job.waiting(0)
    gate.process.send_signal(signal.SIGUSR2)
    other = job.gate(make_plan(), 1)

    assert [Exit.OK, Exit.OK] == [gate.wait(), other.wait()]


def test_a_hub_that_is_told_to_stop_ends_the_waiting_gates_and_blames_nobody(job: Job) -> None:
    hub, gate = job.waiting(0)
    hub.process.send_signal(signal.SIGTERM)

    assert gate.wait(5) == Exit.STOPPED
    assert hub.wait(5) == Exit.STOPPED


def test_gates_say_within_seconds_that_their_hub_was_killed(job: Job) -> None:
    hub, gate = job.waiting(1)
    hub.process.kill()

    assert gate.wait(15) == Exit.NODE_AT_FAULT
    assert "the hub on node 0 went away" in " ".join(gate.output.split())


@pytest.mark.whole
def test_a_gate_that_is_told_to_stop_keeps_the_code_of_its_verdict(job: Job, tmp_path: Path) -> None:
    """In a pod it stays for node 0's to end first; then Kubernetes deletes it. The verdict's code remains."""
    plan, end = make_plan(master_addr="x" * 64 + ".invalid"), tmp_path / "end"
    hub = job.hub(plan)
    gates = [job.gate(plan, node, env={Env.TERMINATION: str(end)} if node else {}) for node in range(2)]
    assert Exit.NODE_AT_FAULT == gates[0].wait(15)
    hub.wait(15)  # it leaves after all gates have the verdict
    assert gates[1].process.poll() is None
    gates[1].process.send_signal(signal.SIGTERM)

    assert Exit.NODE_AT_FAULT == gates[1].wait(3)
    last = json.loads(end.read_text())
    assert (Exit.NODE_AT_FAULT, "dns-not-found") == (last["exit_code"], last["verdicts"][0]["code"])


def test_a_gate_that_is_told_to_stop_ends_the_job_and_blames_nobody(job: Job) -> None:
    hub, gate = job.waiting(0)
    gate.process.send_signal(signal.SIGTERM)

    assert gate.wait(5) == Exit.STOPPED
    assert hub.wait(5) == Exit.STOPPED
    assert job.bundle.verdicts == []
