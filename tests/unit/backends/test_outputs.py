"""What a job's ranks wrote, by what lies in its folder."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ddplaunch.agent.contract import SOURCE_MARK, Files, JobPlan, codec
from ddplaunch.agent.supervisor import launch
from ddplaunch.backends import outputs
from ddplaunch.plan.source import SourceFile
from ddplaunch.render.archive import source_archive


def job(folder: Path, workdir: Path | None = None) -> Path:
    """The folder of a job whose source has one file."""
    folder.mkdir(parents=True)
    plan = JobPlan("toy", 1, 1, [], ["train.py"], workdir=str(workdir) if workdir else None)
    codec.write(str(folder / Files.PLAN), plan)
    if workdir is None:
        (folder / Files.SOURCE).write_bytes(
            source_archive(
                {
                    "train.py": SourceFile(b"x"),
                    "data/": SourceFile(b""),
                    "link.py": SourceFile(b"", link="train.py"),
                }
            )
        )
        launch.unpack(str(folder / Files.SOURCE), str(folder / Files.WORK))
    return folder


def test_all_but_the_source_is_an_output(tmp_path: Path) -> None:
    """Byte code is none; a file of the source that a rank has written again is one."""
    folder = job(tmp_path / "job")
    work = folder / Files.WORK
    assert [()] == [each.files for each in outputs.of_job(folder, 0.0)]

    (work / "__pycache__").mkdir()
    (work / "__pycache__" / "x.pyc").write_bytes(b"x")
    (work / "ckpt").mkdir()
    (work / "ckpt" / "last.pt").write_bytes(b"12345")
    (work / "train.py").write_text("y")
    (only,) = outputs.of_job(folder, 0.0)

    assert [("ckpt/last.pt", 5), ("train.py", 1)] == [(each.path, each.size) for each in only.files]
    assert (6, True, None) == (only.size, only.own, only.node)


def test_a_copy_that_keeps_the_time_of_the_source_is_an_output(tmp_path: Path) -> None:
    """As `shutil.copy2` makes it, with which a training keeps its configuration; and so is a link."""
    folder = job(tmp_path / "job")
    work = folder / Files.WORK
    shutil.copy2(work / "train.py", work / "data" / "train.py")
    (work / "last.py").symlink_to("data/train.py")
    (work / "latest").symlink_to("data")
    (only,) = outputs.of_job(folder, 0.0)

    assert ["data/train.py", "last.py", "latest"] == [each.path for each in only.files]


def test_without_its_mark_all_files_are_outputs(tmp_path: Path) -> None:
    """A rank has emptied the folder: what is named too much loses nothing."""
    folder = job(tmp_path / "job")
    (folder / Files.WORK / SOURCE_MARK).unlink()
    (only,) = outputs.of_job(folder, 0.0)

    assert ["link.py", "train.py"] == [each.path for each in only.files]


def test_what_a_node_wrote_apart_is_named_with_the_node(tmp_path: Path) -> None:
    folder = job(tmp_path / "job")
    (folder / "outputs" / "node-1").mkdir(parents=True)
    (folder / "outputs" / "node-1" / "x").write_bytes(b"1")

    found = outputs.of_job(folder, 0.0)

    assert [(None, []), (1, ["x"])] == [(each.node, [file.path for file in each.files]) for each in found]


def test_checkpoints_in_the_folder_of_all_attempts_are_outputs(tmp_path: Path) -> None:
    """DDPLAUNCH_RESUME_DIR, where the job file names no other folder for it."""
    folder = job(tmp_path / "job")
    (folder / Files.RESUME).mkdir()
    assert [""] == [each.name for each in outputs.of_job(folder, 0.0)]

    (folder / Files.RESUME / "last.pt").write_bytes(b"12345")

    assert [("", 0), ("resume", 5)] == [(each.name, each.size) for each in outputs.of_job(folder, 0.0)]


def test_beside_the_job_file_it_is_what_was_written_since(tmp_path: Path) -> None:
    """The job's own folder may lie there, and is none of it."""
    folder = job(tmp_path / "toy-7", tmp_path)
    now = time.time()
    for name, later in {"old": 0.0, "new": 60.0, "toy-7.out": 60.0}.items():
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (now + later,) * 2)

    (only,) = outputs.of_job(folder, now + 30, [tmp_path / "toy-7.out"])

    assert (["new"], False) == ([each.path for each in only.files], only.own)


def test_a_folder_of_more_files_than_are_looked_at_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = job(tmp_path / "job")
    monkeypatch.setattr(outputs, "_MOST", 3)
    for number in range(5):
        (folder / Files.WORK / str(number)).write_text("")

    (only,) = outputs.of_job(folder, 0.0)

    assert not only.complete
