"""Strangers who want the hub's memory: thousands of connections that never prove anything."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.gate.jobs import Job, make_plan
from tests.agent.hub.nodes import nodes_of

STRANGERS = 2500
GROWTH = 12.0
"""MB. Each stranger's 64 kB, kept, would be 160."""


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, STRANGERS + 500)), hard))
    job = Job(tmp_path, agent)
    yield job
    job.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def megabytes(job: Job, name: str) -> float:
    """Of the hub's process: VmRSS now, VmHWM at its largest."""
    status = Path(f"/proc/{job.hub_process.process.pid}/status").read_text("ascii")
    found = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


@pytest.mark.parametrize("size", [64 * 1024, 1000])
def test_thousands_of_unauthenticated_connections_cost_the_hub_no_memory(job: Job, size: int) -> None:
    plan = make_plan()
    job.hub(plan)
    before = megabytes(job, "VmRSS")
    with contextlib.ExitStack() as opened:
        for _ in range(STRANGERS):
            stranger = opened.enter_context(socket.create_connection(("127.0.0.1", job.hub_port), 10))
            stranger.setblocking(False)
            with contextlib.suppress(OSError):
                stranger.send(b"x" * size)
        nodes = nodes_of(job, 2)
        for node in nodes:
            node.check_in(plan)

        assert [2, 2] == [len(node.expect("mesh", 20)["tasks"]) for node in nodes]
        assert megabytes(job, "VmHWM") - before < GROWTH
