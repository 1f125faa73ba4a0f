"""What a job left is found, whichever of its files are there."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path

import pytest
from tests.unit.backends.bundles import BUNDLE, block
from tests.unit.backends.conftest import status_json

from ddplaunch.agent.contract import Bundle, NodeEvidence, Phase, bundle_file, codec
from ddplaunch.backends.slurm import evidence
from ddplaunch.backends.slurm.commands import Commands, Queries
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.snapshot import Snapshot
from ddplaunch.backends.slurm.submission import Submission
from ddplaunch.errors import ClusterError


def test_what_a_job_left_is_found(tmp_path: Path) -> None:
    """Its bundle, that of an earlier attempt, or what its hub printed."""
    record = Submission("digits", str(tmp_path), "", 1.0, 7)
    snapshot = Snapshot(7, "", None, record)
    queries = Queries(Commands())
    nothing = evidence.collect(snapshot, queries)
    (tmp_path / "digits-7/run").mkdir(parents=True)
    (tmp_path / "digits-7/run/hub.log").write_text("\n".join(block(BUNDLE)))
    printed = evidence.collect(snapshot, queries)
    (tmp_path / "digits-7/run-0").mkdir()
    earlier = Bundle("digits", 0, 2, 1, 1.0, 1.0)
    bundle_file.write(str(tmp_path / "digits-7/run-0/bundle.zip"), earlier)

    assert (None, BUNDLE) == (nothing, printed)
    assert earlier == evidence.collect(snapshot, queries)


def test_what_a_hub_said_counts_for_its_own_attempt(tmp_path: Path) -> None:
    """Not after a requeue; but where accounting does not count attempts, the last word stands."""
    (tmp_path / "digits-7/run").mkdir(parents=True)
    (tmp_path / "digits-7/run/status.json").write_text(status_json(attempt=1))
    snapshots = [
        Snapshot(7, "", SlurmJob(7, "PENDING", name="digits", workdir=str(tmp_path), restarts=restarts), None)
        for restarts in (1, 2, None)
    ]

    assert [True, False, True] == [snapshot.hub_status() is not None for snapshot in snapshots]


def printed(task: int, host: str, cut: int = 0) -> list[str]:
    """A node's evidence in lines, as srun labels them; without the last `cut` of these."""
    evidence = NodeEvidence(0, host, 0.0, Phase.RUNNING, missing=["a source " * 9])
    text = base64.b64encode(zlib.compress(codec.text(evidence).encode())).decode()
    lines = [f"{task}: {text[at : at + 20]}" for at in range(0, len(text), 20)]
    return lines[: len(lines) - cut]


def test_lines_of_many_nodes_are_mixed() -> None:
    """Each node's are put together by its number, which is that of its task."""
    both = [line for pair in zip(printed(1, "n2"), printed(0, "n1"), strict=True) for line in pair]

    assert [(0, "n1"), (1, "n2")] == [
        (each.node, each.host) for each in evidence.outside_evidence("\n".join(both))
    ]


def test_a_node_that_did_not_come_to_its_end() -> None:
    """And one that prints something else: neither gives evidence, and the others count."""
    lines = [*printed(0, "n1", cut=1), *printed(10, "n11"), "2: slurmstepd: error: no python3", "srun: error"]

    assert [(10, "n11")] == [(each.node, each.host) for each in evidence.outside_evidence("\n".join(lines))]


def test_a_step_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another user's job: srun's own words, and who may."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\necho 'srun: error: Unable to create step for job 7: denied' >&2\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    with pytest.raises(ClusterError, match=r"no node of job 7 could be looked at: .*denied") as raised:
        evidence.collect_from_outside(SlurmJob(7, "RUNNING", nodes=2), Commands())

    assert "only the job's user" in raised.value.hint
