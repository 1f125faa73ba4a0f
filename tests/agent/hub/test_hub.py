"""A real hub process, spoken to over its protocol as a gate does, and as gates never should."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.agent import printed
from tests.agent.gate.jobs import Job, make_plan, wait_for
from tests.agent.hub.nodes import Node, gathered, nodes_of, only_verdict, released
from tests.busy import BUSY

from ddplaunch.agent.contract import Exit, Files, Marks, Phase, Verdict
from ddplaunch.agent.platforms.scheduler_log import UnreachedReport, report_line
from ddplaunch.agent.transport.protocol import Body, LostError


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
    first, second = gathered(job, make_plan())
    for node in (first, second):
        node.try_paths()
    first.expect("unbind")

    assert second.channel.receive(0.3) is None
    first.channel.send("unbound", {})
    assert first.expect("release") == second.expect("release")


def test_a_gate_that_is_started_again_after_the_release_gets_the_same_release(job: Job) -> None:
    plan = make_plan(nodes=1)
    (node,) = gathered(job, plan)
    release = released([node])
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


@pytest.mark.parametrize("body", [{}, {"check_in": {"node": "one"}}])
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
    released([healthy])


@pytest.mark.parametrize(
    ("gone", "when"), [(1, "in the mesh"), (0, "after it"), (1, "after it"), (0, "before the port is free")]
)
def test_a_node_that_vanishes_at_the_gate_is_missing_at_once(job: Job, gone: int, when: str) -> None:
    nodes = gathered(job, make_plan(nodes=3, gate={"timeout": 60.0}))
    if when == "in the mesh":
        nodes[gone].expect("mesh")
    elif when == "after it":
        nodes[gone].try_paths()
        nodes[gone].channel.send("status", {})
        nodes[gone].expect("status")
    else:
        for node in nodes:
            node.try_paths()
        nodes[gone].expect("unbind")
    nodes[gone].channel.close()

    for node in nodes[:gone] + nodes[gone + 1 :]:
        assert ("node-missing", [gone]) == only_verdict(node, 5)


def report(job: Job, node: int, seconds: float, nodes: list[int]) -> None:
    """A gate that cannot reach the hub says so in its output, which srun labels and brings here."""
    verdict = Verdict.of("port-filtered", f"node {node} -> the hub: no answer", "gate", nodes=nodes)
    with (job.folder("hub") / Files.GATES).open("a") as file:
        line = report_line(UnreachedReport(node, seconds, verdict))
        file.write(f"{node}: 10:00:00 waiting for the hub\n{node}: {line}\n")


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


def test_the_bundle_in_the_log_is_the_one_beside_the_job(job: Job) -> None:
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


def test_the_hub_listens_where_it_says(job: Job) -> None:
    hub = job.hub(make_plan())
    found = json.loads((job.folder("hub") / Files.HUB).read_text())
    children = Path(f"/proc/{hub.process.pid}/task/{hub.process.pid}/children").read_text().split()

    assert {"host": "127.0.0.1", "port": job.hub_port, "pid": int(children[0])} == found
    assert 10000 <= job.hub_port < 32768
