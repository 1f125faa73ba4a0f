"""A job on this machine that needs only some of its nodes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.agent.local.jobs import PRINTS, Job, wait_for
from tests.agent.local.jobs import _job as _job  # the fixture `job`

from ddplaunch.agent.contract import Env, Exit, Files, Phase, bundle_file


def kill_gate(job: Job, node: int) -> bool:
    """Kill the gate of this node, if it is there."""
    for pid in job.processes("gate"):
        if f"{Env.NODE}={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def test_a_node_that_is_lost_at_the_gate_is_left_out(job: Job) -> None:
    """Two of three suffice: they run to their end, and the job's result is theirs."""
    job.start(PRINTS, nodes=3, min_nodes=2, names=["127.0.0.1"] * 3)
    wait_for(lambda: kill_gate(job, 2))

    assert Exit.OK == job.end()
    assert 2 == (job.folder / Files.OUTPUT).read_text().count("it runs")
    status, bundle = job.status(), bundle_file.read(str(job.folder / Files.BUNDLE))
    assert [(0, Exit.OK), (1, Exit.OK), (2, None)] == [(node.node, node.exit_code) for node in status.nodes]
    assert (Phase.ENDED, "the job goes on without it") == (status.nodes[2].phase, status.nodes[2].detail)
    assert "the job goes on without node 2" in "\n".join(event.text for event in bundle.events)
    assert [] == job.processes()
