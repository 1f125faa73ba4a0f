"""What is remembered of submissions, without Slurm."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from tests.disks import fill, small_disk

from ddplaunch.backends.job import Handle
from ddplaunch.backends.slurm.backend import SlurmBackend, parse_handle
from ddplaunch.backends.slurm.submission import Records, Submission
from ddplaunch.errors import ClusterError, UsageError
from ddplaunch.render import RenderedFile


def begin(records: Records, name: str, **changes: object) -> Submission:
    """A submission, as it is remembered."""
    begun = records.begin(name, f"{name}.sbatch", RenderedFile(b"#!/bin/sh\n"), "/w", {"env.LR": "0.1"})
    sent = dataclasses.replace(begun, **changes)  # type: ignore[arg-type]
    records.save(sent)
    return sent


def test_a_submission_is_remembered_whole(tmp_path: Path) -> None:
    """Its file under a path of its own, and all that is known of it, by its job's id."""
    records = Records(tmp_path)
    first = begin(records, "digits", job_id=7, cluster="north", at=1.0)
    second = begin(records, "digits", job_id=7, cluster="", at=2.0, state="failed", exit_code=20, ended=3.5)

    assert [second, first] == Records(tmp_path).all()
    assert (second, first, None) == (records.find(7), records.find(7, "north"), records.find(8))
    assert first.script != second.script
    assert b"#!/bin/sh\n" == Path(first.script).read_bytes()


def test_a_mark_is_kept_with_its_submission(tmp_path: Path) -> None:
    """That somebody asked for its end, also when its folder is gone."""
    records = Records(tmp_path)
    first, second = begin(records, "a"), begin(records, "b")
    first.mark_cancelled()
    records.drop(second)
    second.mark_cancelled()

    assert (True, False) == (first.cancelled, second.cancelled)
    assert [first] == records.all()


def test_a_full_disk_hides_no_job(tmp_path: Path) -> None:
    """What Slurm has taken keeps its handle; what cannot be recorded is not sent, and leaves nothing."""
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        records = Records(disk)
        sent = begin(records, "a")
        fill(disk)

        records.save(dataclasses.replace(sent, job_id=7))
        with pytest.raises(ClusterError, match="No space left on device"):
            begin(records, "b")

        assert [sent] == records.all()
        assert [Path(sent.script).parent] == list(records.folder.iterdir())


def test_completion_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles come from what is remembered, on any machine."""
    monkeypatch.setenv("PATH", "")
    backend = SlurmBackend(tmp_path)
    begin(backend.records, "a", job_id=7, at=1.0, state="failed")
    begin(backend.records, "b", job_id=8, at=2.0, cluster="north")
    begin(backend.records, "c", at=3.0)  # Slurm may not have it

    assert [("slurm://north/8", "b"), ("slurm://7", "a, failed")] == [
        (str(each.handle), each.about) for each in backend.known()
    ]


@pytest.mark.parametrize(
    ("path", "found"), [("7", (7, "")), ("north/7", (7, "north")), ("my.cluster-2/7", (7, "my.cluster-2"))]
)
def test_a_handle_is_an_id_of_a_cluster(path: str, found: tuple[int, str]) -> None:
    assert found == parse_handle(Handle("slurm", path))


@pytest.mark.parametrize("path", ["digits", "7/8/9", "7_1", "../7", "north/", "-7", "7x"])
def test_anything_else_is_no_handle(path: str) -> None:
    with pytest.raises(UsageError, match="is not the handle of a Slurm job"):
        parse_handle(Handle("slurm", path))


@pytest.mark.timeout(20)
def test_a_broken_record_hides_no_other(tmp_path: Path) -> None:
    """A named pipe, one that was cut off or that a newer version wrote: each is passed over."""
    records = Records(tmp_path)
    good = begin(records, "a")
    for number, text in enumerate(("", "{}", '{"name": 3}', '{"x":' + "[" * 10**6)):
        (records.folder / f"odd-{number}").mkdir()
        (records.folder / f"odd-{number}" / "job.json").write_text(text)
    (records.folder / "pipe").mkdir()
    os.mkfifo(records.folder / "pipe" / "job.json")

    assert [good] == records.all()


def test_old_submissions_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their scripts, which hold the agent."""
    records = Records(tmp_path)
    begin(records, "first")
    monkeypatch.setattr("ddplaunch.backends.slurm.submission.KEPT", -1.0)
    second = begin(records, "second")

    assert [second] == records.all()
    assert ["second.sbatch"] == [each.name for each in records.folder.rglob("*.sbatch")]
