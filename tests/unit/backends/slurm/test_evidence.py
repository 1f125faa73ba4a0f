"""What a job left is found, whichever of its files are there."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from tests.unit.backends.conftest import status_json

from ddplaunch.agent.contract import Bundle, Marks, bundle_file, codec
from ddplaunch.backends.slurm import evidence
from ddplaunch.backends.slurm.commands import Commands
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.record import Submission
from ddplaunch.backends.slurm.snapshot import Snapshot

BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0, exit_code=20)


def block(bundle: Bundle) -> list[str]:
    """As the hub prints it."""
    text = base64.b64encode(zlib.compress(json.dumps(codec.dump(bundle)).encode())).decode()
    return [Marks.BUNDLE, *(text[start : start + 60] for start in range(0, len(text), 60)), Marks.BUNDLE_END]


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
