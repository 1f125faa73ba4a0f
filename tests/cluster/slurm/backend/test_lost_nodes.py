"""A node that is lost in mid-run: named soon, and Slurm's waiting for it keeps nobody."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from tests.busy import BUSY
from tests.cluster.slurm.backend.commands import ddplaunch, start
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.training import TRAIN

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def freeze(cluster: Cluster) -> None:
    """Its processes stand still, its connections stay open, and its kernel confirms what is sent to it."""
    cluster.freeze("n2")


def cut(cluster: Cluster) -> None:
    """Its cable is pulled."""
    cluster.link("n2", up=False)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("lose", "says"),
    [(freeze, "its processes are frozen or starved"), (cut, "stopped answering at")],
    ids=["frozen", "cut"],
)
@pytest.mark.fault("network-lost")
def test_a_node_is_lost_in_mid_run(
    cluster: Cluster, work: Path, lose: Callable[[Cluster], None], says: str
) -> None:
    """The notice names it within seconds, the end comes at kill_after, and who waits hears it at once."""
    cluster.configure("SlurmdTimeout=120")
    (work / "program.py").write_text(TRAIN.format(before="", step="pass"))
    job = {"apiVersion": "ddplaunch/v1", "name": "job", "nodes": 2, "python": sys.executable}
    job |= {"source": ["program.py"], "command": ["program.py"], "resources": {"memory": "900Mi"}}
    job |= {"watchdog": {"notice_after": "5s", "kill_after": "12s"}}
    (work / "job.yaml").write_text(json.dumps(job))
    waiting = start(cluster, work, "submit", "job.yaml", "--to", "slurm", "--wait")
    try:
        first(waiting.stderr, r"\[1/1\] up")
        lose(cluster)
        lost = time.monotonic()
        noticed = first(waiting.stderr, "network-lost")
        over = first(waiting.stderr, "the job has failed, for a node or the network")
        told = first(waiting.stderr, "ddplaunch: failed after")
        handle = waiting.stdout.readline().strip() if waiting.stdout is not None else ""
        shown = json.loads(ddplaunch(cluster, work, "status", handle, "--json", check=False).stdout)
    finally:
        waiting.kill()
        waiting.communicate()

    assert noticed - lost < 15 + BUSY * 5
    assert told - over < 10 + BUSY * 5
    (verdict,) = shown["verdicts"]
    assert ("network-lost", [1]) == (verdict["code"], verdict["nodes"])
    assert says in verdict["sentence"]
    assert ("failed", 20) == (shown["state"], shown["exit_code"])
    assert shown["lingers"].startswith("Slurm has not released ")


def first(lines: IO[str] | None, pattern: str) -> float:
    """When the first line came that holds this."""
    assert lines is not None
    said = []
    for line in lines:
        said.append(line)
        print(f"{time.monotonic():.1f} {line}", end="")
        if re.search(pattern, line):
            return time.monotonic()
    raise AssertionError(f"no line with {pattern!r} in {''.join(said)}")
