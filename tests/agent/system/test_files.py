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


def test_lines_wait_for_room_on_a_full_disk_and_come_in_order(disk: Path) -> None:
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


def test_beyond_the_bound_the_log_says_what_is_lost(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BACKLOG", 10)
    with closing(LogFile(str(disk / "output.log"), lambda _: None)) as log:
        filler = fill(disk)

        log.write(b"0123456789abcdef\n")
        filler.unlink()
        log.write(b"the last\n")

    wanted = [b"... 7 bytes are missing here: the disk was full", b"789abcdef", b"the last"]
    assert (disk / "output.log").read_bytes().splitlines() == wanted


def test_on_a_healthy_disk_every_write_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    with closing(LogFile(str(path), pytest.fail)) as log:
        log.write(b"one\n")
        assert path.read_bytes() == b"one\n"
        log.write(b"two\n")
        assert path.read_bytes() == b"one\ntwo\n"
