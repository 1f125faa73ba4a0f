"""Anybody's own job, which hangs: one command tells why, and leaves nothing on its nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.training import NEVER, TRAIN

BIN = Path(sys.executable).parent
TORCHRUN = f"{BIN}/torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29533"
SCRIPT = f"#!/bin/sh\nexport PATH={BIN}:$PATH OMP_NUM_THREADS=1\nsrun --mem=0 {TORCHRUN} train.py\n"
"""As in many a tutorial: no line of it is about ddplaunch."""


def _submitted(cluster: Cluster, work: Path, before: str, step: str) -> int:
    """A job of two nodes that is about to hang in its steps."""
    (work / "train.py").write_text(TRAIN.format(before=before, step=step))
    number = cluster.submit(SCRIPT, "--nodes=2", "--ntasks-per-node=1", "--mem=2000", cwd=work)
    output = work / f"slurm-{number}.out"
    cluster.until(
        lambda: output.exists() and output.read_text().count("up") == 4,
        "all ranks train",
        120,
        output.read_text,
    )
    return number


def _diagnosed(cluster: Cluster, number: int) -> dict[str, Any]:
    done = cluster.login([BIN / "ddplaunch", "diagnose", f"slurm://{number}", "--json"], timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.whole
def test_a_loader_that_hangs_on_another_node(cluster: Cluster, work: Path) -> None:
    """Rank and node are named, and the job goes on as it was."""
    number = _submitted(cluster, work, NEVER, "batch(rank - 2)")  # of rank 3

    before = {node: cluster.leftovers(node) for node in cluster.nodes}  # torchrun's own
    found: dict[str, Any] = {}

    def told() -> bool:
        found.update(_diagnosed(cluster, number))
        return [each["code"] for each in found["verdicts"]] == ["rank-in-dataloader"]

    cluster.until(told, "the loader is told", 120, lambda: str(found))
    verdict = found["verdicts"][0]
    assert ("rank-in-dataloader", [3], [0, 1, 2], [1]) == (
        verdict["code"],
        verdict["ranks"],
        verdict["victims"],
        verdict["nodes"],
    ), found
    assert "rank 3 is in DataLoader.__next__ (train.py:" in verdict["sentence"]
    assert [{"node": 0, "host": "n1"}, {"node": 1, "host": "n2"}] == found["nodes"]
    assert "RUNNING" == cluster.state(number)
    assert before == {node: cluster.leftovers(node) for node in cluster.nodes}


def test_a_job_without_ranks(cluster: Cluster, work: Path) -> None:
    """Nothing is known to be wrong with it, and what was looked for is named."""
    number = cluster.submit("#!/bin/sh\nsleep 300\n", "--nodes=2", cwd=work)
    cluster.running(number)

    found = _diagnosed(cluster, number)

    assert ([], "running") == ([each["ranks"] for each in found["verdicts"] if each["ranks"]], found["state"])
    text = "no process with RANK and LOCAL_RANK in its environment is seen (nodes 0-1)"
    assert text in found["evidence"]["missing"]
