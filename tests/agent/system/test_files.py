"""A log on a disk that is full for a while: a real one, of a few kilobytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.disks import fill, small_disk

from ddplaunch.agent.system import files
from ddplaunch.agent.system.files import LogFile


@pytest.fixture(name="disk")
def _disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 1 << 16) as disk:
        yield disk


def test_lines_wait_for_room_and_come_in_order(disk: Path) -> None:
    """A full disk is reported once, and nothing is lost when it has room again."""
    complaints: list[str] = []
    with closing(LogFile(str(disk / "output.log"), complaints.append)) as log:
        filler = fill(disk)

        for number in range(100):
            log.write(b"line %d\n" % number)
        assert [f"cannot write {disk}/output.log: No space left on device"] == complaints
        filler.unlink()
        log.write(b"the last\n")

    expected = b"".join(b"line %d\n" % number for number in range(100)) + b"the last\n"
    assert expected == (disk / "output.log").read_bytes()


def test_a_bounded_amount_waits(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the oldest bytes are lost, and the log says so where they are missing."""
    monkeypatch.setattr(files, "BACKLOG", 10)
    with closing(LogFile(str(disk / "output.log"), lambda _: None)) as log:
        filler = fill(disk)

        log.write(b"0123456789abcdef\n")
        filler.unlink()
        log.write(b"the last\n")

    assert (disk / "output.log").read_bytes().splitlines() == [
        b"... 7 bytes are missing here: the disk was full",
        b"789abcdef",
        b"the last",
    ]


def test_a_healthy_disk_hears_no_complaint(tmp_path: Path) -> None:
    """Every write is in the file at once."""
    path = tmp_path / "output.log"
    with closing(LogFile(str(path), pytest.fail)) as log:
        log.write(b"one\n")
        assert path.read_bytes() == b"one\n"
        log.write(b"two\n")
        assert path.read_bytes() == b"one\ntwo\n"
