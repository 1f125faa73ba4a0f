"""A real hub process, spoken to over its protocol as a gate does, and as gates never should."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent import printed
from tests.agent.gate.jobs import Job, make_plan, wait_for
from tests.agent.hub.nodes import Node, nodes_of
from tests.busy import BUSY

from ddplaunch.agent.contract import (
    Event,
    Exit,
    Files,
    JobStatus,
    Marks,
    Phase,
    Verdict,
    codec,
)
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line
from ddplaunch.agent.transport.protocol import Body, LostError


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    job = Job(tmp_path, agent)
    yield job
    job.close()


def test_nodes_at_the_gate_hear_every_second_who_is_missing(job: Job) -> None:
    plan = make_plan(nodes=3)
    job.hub(plan)
    first, second, third = nodes_of(job, 3)
    third.check_in(plan)

    assert third.expect("waiting")["missing"] == [0, 1]
    wait_for(lambda: job.status.phase == Phase.GATE)
    first.check_in(plan)
    wait_for(lambda: third.expect("waiting")["missing"] == [1])
    body = third.expect("waiting")
    assert body["seconds"] > 0
    wait_for(lambda: job.status.waiting_for == [1])
    second.check_in(plan)
    assert len(third.expect("mesh")["tasks"]) == 3


def test_no_node_is_released_before_the_master_port_is_free(job: Job) -> None:
    plan = make_plan()
    job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    second.check_in(plan)
    for node in (first, second):
        node.try_paths()
    first.expect("unbind")

    assert second.channel.receive(0.3) is None
    first.channel.send("unbound", {})
    assert first.expect("release") == second.expect("release")


def test_a_gate_that_is_started_again_after_the_release_gets_the_same_release(job: Job) -> None:
    plan = make_plan(nodes=1)
    job.hub(plan)
    node = Node(job, 0)
    node.check_in(plan)
    release = node.pass_mesh()
    node.channel.close()
    again = Node(job, 0)
    again.check_in(plan, pid=4711)

    assert release == again.expect("release")


def test_a_verdict_reaches_all_nodes_also_late_ones_and_ends_the_hub(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    second.check_in(plan, nodes=4)
    first.try_paths()
    second.try_paths()

    verdict = first.expect("verdict")
    assert verdict == second.expect("verdict")
    assert verdict["exit_code"] == Exit.MISCONFIGURED
    late = Node(job, 1)
    late.check_in(plan)
    assert verdict == late.expect("verdict")
    for node in (first, second, late):
        node.channel.close()
    assert hub.wait(5) == Exit.MISCONFIGURED


def test_a_failure_that_cannot_pass_ends_the_job_before_all_nodes_are_there(job: Job) -> None:
    plan = make_plan(nodes=3)
    job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    second.check_in(plan, nproc_per_node=8)
    started = time.monotonic()

    assert [v["code"] for v in first.expect("verdict")["verdicts"]] == ["world-size-differs"]
    assert time.monotonic() - started < BUSY * 5


@pytest.mark.parametrize(("backend", "expected"), [("c10d", "clock-skew"), ("static", None)])
def test_a_skew_of_a_minute_is_a_verdict_only_where_torchrun_compares_clocks(
    job: Job, backend: str, expected: str | None
) -> None:
    plan = make_plan(launch=["{python}", f"--rdzv-backend={backend}"])
    job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    second.check_in(plan, at=time.time() + 61)

    if expected is not None:
        first.try_paths()
        second.try_paths()
        (verdict,) = first.expect("verdict")["verdicts"]
        assert (verdict["code"], verdict["nodes"]) == (expected, [1])
        assert "node 1's clock is 61 s ahead" in verdict["sentence"]
    else:
        assert len(second.expect("mesh")["tasks"]) == 2
        assert any("clocks differ" in event.text for event in events(job))


def events(job: Job) -> list[Event]:
    """All lines of events.jsonl, whole."""
    path = job.folder("hub") / Files.EVENTS
    return [codec.load(Event, json.loads(line)) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    "body", [{}, {"check_in": 5}, {"check_in": {"node": "one"}}, {"check_in": {"node": 0}}]
)
def test_a_malformed_check_in_costs_its_sender_the_session(job: Job, body: Body) -> None:
    plan = make_plan(nodes=1)
    hub = job.hub(plan)
    node = Node(job, 0)
    node.channel.send("check-in", body)

    with pytest.raises(LostError):
        node.channel.receive(BUSY * 5)
    assert "cannot read a message from 127.0.0.1: CheckingIn" in hub.output
    healthy = Node(job, 0)
    healthy.check_in(plan)
    healthy.pass_mesh()


def test_a_node_that_vanishes_in_the_mesh_is_missing_at_once(job: Job) -> None:
    plan = make_plan(gate={"timeout": 60.0})
    job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    second.check_in(plan)
    second.expect("mesh")
    second.channel.close()

    (verdict,) = first.expect("verdict", 5)["verdicts"]
    assert (verdict["code"], verdict["nodes"]) == ("node-missing", [1])


@pytest.mark.parametrize("gone", [0, 1])
def test_a_node_that_vanishes_after_its_results_is_missing_at_once(job: Job, gone: int) -> None:
    plan = make_plan(nodes=3, gate={"timeout": 60.0})
    job.hub(plan)
    nodes = nodes_of(job, 3)
    for node in nodes:
        node.check_in(plan)
    nodes[gone].try_paths()
    nodes[gone].channel.send("status", {})
    nodes[gone].expect("status")
    nodes[gone].channel.close()

    for node in nodes[:gone] + nodes[gone + 1 :]:
        (verdict,) = node.expect("verdict", 5)["verdicts"]
        assert ("node-missing", [gone]) == (verdict["code"], verdict["nodes"])


def test_node_zero_that_vanishes_before_it_frees_the_master_port_is_missing(job: Job) -> None:
    plan = make_plan(gate={"timeout": 60.0})
    job.hub(plan)
    first, second = nodes_of(job, 2)
    for node in (first, second):
        node.check_in(plan)
    for node in (first, second):
        node.try_paths()
    first.expect("unbind")
    first.channel.close()

    (verdict,) = second.expect("verdict", 5)["verdicts"]
    assert ("node-missing", [0]) == (verdict["code"], verdict["nodes"])


def report(job: Job, node: int, seconds: float, nodes: list[int]) -> None:
    """A gate that cannot reach the hub says so in its output, which srun labels and brings here."""
    verdict = Verdict.of("port-filtered", f"node {node} -> the hub: no answer", "gate", nodes=nodes)
    with (job.folder("hub") / Files.GATES).open("a") as file:
        line = report_line(UnreachedReport(node, seconds, verdict))
        file.write(f"{node}: 10:00:00 waiting for the hub\n{node}: {line}\n")


def test_a_node_that_reports_in_its_output_that_it_cannot_reach_the_hub_is_named(job: Job) -> None:
    plan = make_plan(gate={"timeout": 60.0})
    hub = job.hub(plan)
    (first,) = nodes_of(job, 1)
    first.check_in(plan)
    hub.says("waiting for node 1 (")
    report(job, 1, 5.0, [1])
    hub.says("port-filtered: node 1 -> the hub: no answer")
    assert first.channel.receive(0.5) is None or first.expect("waiting")["missing"] == [1]
    report(job, 1, 25.0, [1])

    assert [("port-filtered", [1])] == [
        (verdict["code"], verdict["nodes"]) for verdict in first.expect("verdict")["verdicts"]
    ]


def test_a_hub_that_no_node_reaches_is_the_fault_of_node_zero(job: Job) -> None:
    plan = make_plan(nodes=3, gate={"timeout": 4.0})
    job.hub(plan)
    (first,) = nodes_of(job, 1)
    first.check_in(plan)
    report(job, 1, 3.0, [1])
    report(job, 2, 3.0, [2])

    (verdict,) = first.expect("verdict")["verdicts"]
    assert ("port-filtered", [0]) == (verdict["code"], verdict["nodes"])
    assert "node 1 -> the hub: no answer (and 1 more)" == verdict["sentence"]


def test_reports_of_nodes_that_came_after_all_are_ignored(job: Job) -> None:
    plan = make_plan(gate={"timeout": 60.0})
    hub = job.hub(plan)
    first, second = nodes_of(job, 2)
    first.check_in(plan)
    with (job.folder("hub") / Files.GATES).open("ab") as file:
        file.write(b'1: {"unreached":1}\n{"unreached":"x","seconds":1}\n\xff\n')
    hub.says("waiting for node 1 (")
    report(job, 1, 5.0, [1])
    report(job, 7, 50.0, [7])
    hub.says("port-filtered: node 1 -> the hub")
    second.check_in(plan)

    for node in (first, second):
        assert len(node.expect("mesh")["tasks"]) == 2


def test_any_client_with_the_key_may_ask_for_the_status(job: Job) -> None:
    plan = make_plan()
    job.hub(plan)
    first = Node(job, 0)
    first.check_in(plan)
    asker = Node(job, 0)
    asker.channel.send("status", {})
    status = codec.load(JobStatus, asker.expect("status")["status"])

    assert (status.job, status.phase) == ("trial", Phase.GATE)
    assert [node.host for node in status.nodes] == ["n0", ""]


def test_the_bundle_is_in_the_log(job: Job) -> None:
    """What a finished pod's log holds is the same bundle that lies beside the job."""
    plan = make_plan()
    hub = job.hub(plan)
    node = Node(job, 0)
    node.check_in(plan)
    node.expect("waiting")
    hub.process.send_signal(signal.SIGTERM)

    assert hub.wait(10) == Exit.STOPPED
    text = hub.output.partition(Marks.BUNDLE)[2].partition(Marks.BUNDLE_END)[0]
    bundle = printed.bundle(text)
    assert bundle == job.bundle
    assert [check_in.host for check_in in bundle.check_ins] == ["n0"]
    assert bundle.exit_code == Exit.STOPPED


def test_a_hub_that_no_node_has_reached_ends_at_once_when_it_is_stopped(job: Job) -> None:
    hub = job.hub(make_plan())
    hub.process.send_signal(signal.SIGTERM)

    assert hub.wait(5) == Exit.STOPPED
    assert job.status.phase == Phase.ENDED


def test_the_hub_listens_where_it_says(job: Job) -> None:
    """hub.json names host, port and process; the port lies outside the ephemeral range."""
    hub = job.hub(make_plan())
    found = json.loads((job.folder("hub") / Files.HUB).read_text())
    children = Path(f"/proc/{hub.process.pid}/task/{hub.process.pid}/children").read_text().split()

    assert {"host": "127.0.0.1", "port": job.hub_port, "pid": int(children[0])} == found
    assert 10000 <= job.hub_port < 32768


def test_a_thousand_nodes(job: Job) -> None:
    """A job of a thousand nodes is called, meshed and released in seconds, by one hub."""
    count = 1000
    plan = make_plan(nodes=count)
    job.hub(plan)
    nodes = nodes_of(job, count)
    for node in nodes:
        node.check_in(plan)
    started = time.monotonic()
    for node in nodes:
        tasks = node.expect("mesh", 60)["tasks"]
        results = [{"node": node.number, "outcome": "ok", **task} for task in tasks]
        node.channel.send("mesh-results", {"results": results})
    nodes[0].expect("unbind", 60)
    nodes[0].channel.send("unbound", {})
    for node in nodes:
        node.expect("release", 60)
    took = time.monotonic() - started

    for node in nodes:
        node.channel.close()
    assert took < BUSY * 40
