"""A hub that lacks something: room, files for all who call, sense in what it is told, some of its nodes."""

from __future__ import annotations

import contextlib
import re
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.gate.jobs import Job, make_plan
from tests.agent.hub.nodes import gathered, nodes_of, released

from ddplaunch.agent.contract import Exit, Files

STRANGERS = 150


def test_a_folder_that_is_deleted_does_not_hold_up_the_release(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    nodes = nodes_of(job, 2)
    shutil.rmtree(job.folder("hub") / Files.RUN)
    for node in nodes:
        node.check_in(plan)

    assert released(nodes)
    hub.says(f"{Files.STATUS}: No such file or directory")


def test_a_hub_that_cannot_write_its_address_ends_at_once(job: Job) -> None:
    (job.folder("hub") / Files.HUB).mkdir(parents=True)
    hub = job.hub(make_plan())

    assert Exit.NODE_AT_FAULT == hub.wait(10)
    assert "disk-full: node 0: the hub cannot write " in hub.output
    assert "Is a directory" in hub.output


def test_more_strangers_than_files_are_dropped_and_nodes_let_in(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan, host=SimpleNamespace(words=["prlimit", "--nofile=100:100"]))
    with contextlib.ExitStack() as opened:
        for _ in range(STRANGERS):
            opened.enter_context(socket.create_connection(("127.0.0.1", job.hub_port), 10))
        nodes = nodes_of(job, 2)
        for node in nodes:
            node.check_in(plan)

        assert [2, 2] == [len(node.expect("mesh", 20)["tasks"]) for node in nodes]
        assert "Too many open files" not in hub.output


def test_facts_that_make_a_rule_fail_cost_neither_the_start_nor_a_connection(job: Job) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    nodes = nodes_of(job, 2)
    nodes[0].check_in(plan, facts={"versions": {"python": 3}, "interfaces": {"prefixes": {"127.0.0.1": "x"}}})
    nodes[1].check_in(plan)

    assert released(nodes)
    assert 1 == hub.output.count("AttributeError: 'int' object has no attribute 'split'")
    assert 1 == hub.output.count("ValueError: '127.0.0.1/x' does not appear to be")


def test_a_node_that_is_told_to_stop_alone_is_neither_late_nor_present(job: Job) -> None:
    first, second = gathered(job, make_plan())
    second.expect("mesh")
    second.channel.send("leave", {"why": "told to stop"})

    (verdict,) = first.expect("verdict")["verdicts"]
    assert ("node-missing", [1]) == (verdict["code"], verdict["nodes"])
    assert "node 1 was told to stop, and the other nodes were not; node 0 is here" == verdict["sentence"]


def test_nodes_that_are_all_told_to_stop_are_nobodys_fault(job: Job) -> None:
    nodes = gathered(job, make_plan(nodes=3))
    for node in nodes:
        node.expect("mesh")
    for node in nodes:
        node.channel.send("leave", {"why": "told to stop"})
        job.hub_process.says(f"node {node.number} was told to stop at the gate")
        node.channel.close()

    assert (Exit.STOPPED, []) == (job.hub_process.wait(10), job.bundle.verdicts)


FLOOD = 2500
GROWTH = 12.0
"""MB. Each stranger's 64 kB, kept, would be 160."""


@pytest.fixture(name="many_files")
def _many_files() -> Iterator[None]:
    """May be open in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, FLOOD + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def megabytes(job: Job, name: str) -> float:
    """Of the hub's process: VmRSS now, VmHWM at its largest."""
    status = Path(f"/proc/{job.hub_process.process.pid}/status").read_text("ascii")
    found = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("size", [64 * 1024, 1000])
def test_thousands_of_unauthenticated_connections_cost_the_hub_no_memory(job: Job, size: int) -> None:
    plan = make_plan()
    job.hub(plan)
    before = megabytes(job, "VmRSS")
    with contextlib.ExitStack() as opened:
        for _ in range(FLOOD):
            stranger = opened.enter_context(socket.create_connection(("127.0.0.1", job.hub_port), 10))
            stranger.setblocking(False)
            with contextlib.suppress(OSError):
                stranger.send(b"x" * size)
        nodes = nodes_of(job, 2)
        for node in nodes:
            node.check_in(plan)

        assert [2, 2] == [len(node.expect("mesh", 20)["tasks"]) for node in nodes]
        assert megabytes(job, "VmHWM") - before < GROWTH
