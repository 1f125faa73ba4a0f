"""A real hub and hundreds of nodes, whose words are those of real gates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gate.jobs import Job, make_plan
from tests.busy import BUSY

from ddplaunch.agent.contract import CheckIn, CheckResult, Exit, codec
from ddplaunch.agent.hub import mesh_plan

NODES = 256
PLAN = make_plan(nodes=NODES, names=[f"n{node}" for node in range(NODES)])
LAUNCHER = Path(__file__).resolve().parents[3] / "launcher"


def crowd(job: Job, folder: Path, cut: int = 0) -> Any:
    """What `crowd.py` tells of all nodes."""
    checks = [CheckResult("names", "pass", "they resolve"), CheckResult("clock", "unknown", "no peer")]
    facts = {"versions": {"python": "3.11.7", "torch": "2.9.0"}}
    check_in = CheckIn(0, "n0", NODES, 2, "", {}, 0.0, netns="net:[1]", facts=facts, checks=checks)
    codec.write(str(folder / "check-in.json"), check_in)
    words = [job.hub_port, job.key.decode(), 0, NODES, folder / "check-in.json", cut]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("crowd.py")), *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(LAUNCHER)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=BUSY * 120,
    )
    return json.loads(done.stdout)


def test_hundreds_of_nodes_are_released_and_sent_no_more_than_their_part(job: Job, tmp_path: Path) -> None:
    job.hub(PLAN)

    told = crowd(job, tmp_path)

    assert told["ended"] == {"release": NODES}
    assert told["longest"] < 200 * (2 * 8 + 16)
    tried = {int(node): peers for node, peers in job.bundle.passed.items()}
    assert tried.keys() == set(range(NODES))
    assert {"master", *map(str, mesh_plan.partners(NODES)[7])} == set(tried[7])


def test_a_rack_that_is_cut_off_is_named_to_all(job: Job, tmp_path: Path) -> None:
    hub = job.hub(PLAN)

    told = crowd(job, tmp_path, cut=NODES - 16)

    assert told["ended"] == {"verdict": NODES}
    assert hub.wait() == Exit.NODE_AT_FAULT
    assert (job.verdict.code, job.verdict.nodes) == ("port-filtered", list(range(NODES - 16, NODES)))
    assert job.verdict.sentence.startswith("nodes 240-255 are cut off from the other nodes on any port")


class Limited:
    """Words that start a command which may open but so many files."""

    words = ("bash", "-c", 'ulimit -n 90; exec "$@"', "limited")


@pytest.mark.fault("files-too-few")
def test_a_hub_that_cannot_hold_so_many_connections_says_so_at_once(job: Job) -> None:
    hub = job.hub(PLAN, host=Limited)

    assert hub.wait() == Exit.NODE_AT_FAULT
    assert job.verdict.code == "files-too-few"
    assert job.verdict.sentence == "node 0: the hub may open 90 files, and needs 288 for 256 nodes"
