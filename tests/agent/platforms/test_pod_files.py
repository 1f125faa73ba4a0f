"""Files that go with a pod are named; what stays, and what came with the job, is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ddplaunch.agent.contract import SOURCE_MARK, SOURCE_TIME
from ddplaunch.agent.platforms import kubernetes

ROOT = "1 0 0:50 / / rw - overlay overlay rw\n"
EMPTY = "2 1 8:1 /var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/run {} rw - ext4 /dev/sda1 rw\n"
CLAIM = "3 1 0:60 /export/a {} rw - nfs4 10.0.0.1:/export rw\n"


@pytest.fixture(name="work")
def _work(tmp_path: Path) -> Path:
    """A folder with a file of the source, byte code, and two files that ranks wrote."""
    work = tmp_path / "work"
    (work / "ckpt").mkdir(parents=True)
    (work / "__pycache__").mkdir()
    (work / "train.py").write_text("x")
    os.utime(work / "train.py", (SOURCE_TIME, SOURCE_TIME))
    (work / SOURCE_MARK).touch()
    os.utime(work / SOURCE_MARK, (time.time() + 1,) * 2)
    (work / "__pycache__" / "x.pyc").write_text("x")
    (work / "a.txt").write_text("12345")
    os.utime(work / "a.txt", (time.time() - 5,) * 2)
    (work / "ckpt" / "last.pt").write_bytes(bytes(2000))
    return work


def gone(work: Path, mounts: str, since: float = 0.0) -> str:
    """Return the sentence, in a pod with these mounts."""
    table = work.parent / "mountinfo"
    table.write_text(mounts)
    return kubernetes.files_gone(str(work), since, str(table))


@pytest.mark.parametrize("mounts", [ROOT, ROOT + EMPTY.format("/tmp")])
def test_files_that_go_are_counted_and_the_newest_is_named(work: Path, mounts: str) -> None:
    """In the image's own file system, and in an emptyDir."""
    said = gone(work, mounts)

    assert said.startswith(f"2 files, 2 KiB, newest ckpt/last.pt, written in {work}, will be"), said


def test_nothing_is_said_of_a_volume_that_stays(work: Path) -> None:
    """It is where checkpoints belong."""
    assert gone(work, ROOT + CLAIM.format(work)) == ""
    assert gone(work, ROOT + EMPTY.format(work.parent) + CLAIM.format(work)) == ""


def test_nothing_is_said_where_nothing_was_written_since(work: Path) -> None:
    """The image's own files are older than the ranks."""
    assert gone(work, ROOT, time.time() + 60) == ""


def test_nothing_is_said_of_a_whole_file_system(work: Path) -> None:
    """Ranks of an image without a folder of its own stand in /, where all kinds of files change."""
    assert kubernetes.files_gone("/", 0.0) == ""
