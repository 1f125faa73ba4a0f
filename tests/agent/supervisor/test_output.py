"""From what ranks write to what people read: lines, prefixes, slow readers."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.disks import fill, small_disk

from ddplaunch.agent.supervisor.output import Console, Tail
from ddplaunch.agent.text.lines import LINE_LIMIT, LineSplitter


def cut(*pieces: bytes) -> list[bytes]:
    """The lines of a stream that comes in `pieces`."""
    lines = LineSplitter()
    return [line for piece in pieces for line in lines.feed(piece)] + lines.flush()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"ne\ntw", b"o"], [b"one", b"two"]),
        ([b"windows\r\n"], [b"windows"]),
        ([b"  0%\r 50%\r100%\n", b"done\n"], [b"100%", b"done"]),
        ([b"  0%\r", b" 50%\r", b"100%\r"], [b"100%"]),
        ([b"\n\n"], [b"", b""]),
        ([b"\xff\x00\x80 bytes\n"], [b"\xff\x00\x80 bytes"]),
        ([], []),
    ],
)
def test_lines_are_told_apart_however_they_come(pieces: list[bytes], expected: list[bytes]) -> None:
    assert cut(*pieces) == expected


def test_a_huge_line_is_shown_in_pieces() -> None:
    lines = LineSplitter()
    found: list[bytes] = []
    largest = 0
    for _ in range(100):
        found += lines.feed(b"x" * 50_000)
        largest = max(largest, len(lines.partial))
    found += lines.flush()

    assert sum(map(len, found)) == 5_000_000
    assert largest <= LINE_LIMIT


def test_a_progress_bar_without_end_does_not_grow() -> None:
    lines = LineSplitter()
    for number in range(100_000):
        lines.feed(b"\r%d of 100000" % number)

    assert len(lines.partial) <= LINE_LIMIT
    assert lines.flush() == [b"99999 of 100000"]


@pytest.mark.parametrize("seed", range(20))
def test_how_a_stream_is_cut_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    stream = bytes(chance.choices(b"ab\r\n\n", k=500))
    pieces, rest = [], stream
    while rest:
        size = chance.randint(1, 40)
        pieces.append(rest[:size])
        rest = rest[size:]

    assert cut(*pieces) == cut(stream)


def read_all(descriptor: int) -> bytes:
    """What can be read now."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


def test_every_line_has_its_prefix() -> None:
    reader, writer = os.pipe()
    console = Console(writer)
    console.write(b"[0/3] ", [b"step 1", b"", b"step 2"])
    console.log("0/ddplaunch", "two\nlines")

    assert read_all(reader) == (
        b"[0/3] step 1\n[0/3] \n[0/3] step 2\n[0/ddplaunch] two\n[0/ddplaunch] lines\n"
    )


def test_a_reader_that_does_not_read_blocks_nobody() -> None:
    reader, writer = os.pipe()
    console = Console(writer)
    lines = [b"%06d" % number for number in range(40_000)]
    begun = time.monotonic()
    for start in range(0, len(lines), 1000):
        console.write(b"[0/0] ", lines[start : start + 1000])
    assert time.monotonic() - begun < BUSY * 5
    received = b""
    while not received.endswith(b"039999\n"):
        received += read_all(reader)
        console.flush()

    assert received == b"".join(b"[0/0] " + line + b"\n" for line in lines)


def test_a_reader_that_is_gone_stops_nobody() -> None:
    reader, writer = os.pipe()
    console = Console(writer)
    os.close(reader)
    for _ in range(100):
        console.write(b"[0/0] ", [b"x" * 100_000])

    assert not console.is_full


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 16) as disk, (disk / "log").open("ab") as log:
        filler = fill(disk)
        console = Console(log.fileno())
        for number in range(100):
            console.write(b"[0/0] ", [b"line %d" % number])
        filler.unlink()
        console.flush()

        expected = b"".join(b"[0/0] line %d\n" % number for number in range(100))
        assert expected == (disk / "log").read_bytes()


def test_two_writers_do_not_mix_lines() -> None:
    reader, writer = os.pipe()
    first, second = Console(writer), Console(os.dup(writer))
    for _ in range(20):
        first.write(b"[0/0] ", [b"a" * 700] * 2)
        second.write(b"[1/1] ", [b"b" * 700] * 2)
        for line in read_all(reader).splitlines():
            assert line in (b"[0/0] " + b"a" * 700, b"[1/1] " + b"b" * 700)


def test_a_tail_tells_news_and_exceptions(tmp_path: Path) -> None:
    """Repeated lines and torch's own warnings are no news; a traceback is kept for whoever asks."""
    log = tmp_path / "stderr.log"
    shown: list[bytes] = []
    tail = Tail(str(log))
    assert tail.read(shown.extend) is False  # it is not there yet

    def say(text: str) -> bool:
        with log.open("a") as file:
            file.write(text)
        return tail.read(shown.extend)

    assert say("waiting\n") is True
    assert say("waiting\n") is False
    assert say("[W1121 04:50:51.804812959 socket.cpp:697] Warning: retrying\n") is False
    assert say("\r 10%") is True
    assert say("\r 20%") is True
    assert say('\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n') is True
    assert [raised.type for raised in tail.raised] == ["ValueError"]
    assert shown[:2] == [b"waiting", b"waiting"]


def test_a_bar_leaves_its_newest_state_as_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddplaunch.agent.text.lines.PARTIAL_EVERY", 0.0)
    log = tmp_path / "stderr.log"
    shown: list[bytes] = []
    tail = Tail(str(log))
    for state in (b"\r 10%", b"\r 20%\r 30%", b"", b"\r100%"):
        with log.open("ab") as file:
            file.write(state)
        tail.read(shown.extend)
    tail.close(shown.extend)

    assert [b" 10%", b" 30%", b"100%"] == shown


def test_a_tail_loses_nothing_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"line\n" * 200_000 + b"the last")
    shown: list[bytes] = []
    tail = Tail(str(log))
    tail.close(shown.extend)

    assert (len(shown), shown[-1], tail.last_line) == (200_001, b"the last", "the last")


def test_a_hidden_tail_keeps_its_last_lines(tmp_path: Path) -> None:
    """What torchrun says is not shown, and is there when nothing else explains the end."""
    log = tmp_path / "launch.log"
    log.write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    shown: list[bytes] = []
    tail = Tail(str(log), shown=False)
    tail.close(shown.extend, keep=3)

    assert (shown, tail.kept) == ([], [b"97", b"98", b"99"])


def test_a_tail_stops_at_its_mark(tmp_path: Path) -> None:
    """What is written after the mark waits for the next one; the end is read in any case."""
    log = tmp_path / "launch.log"
    log.write_bytes(b"before\n")
    shown: list[bytes] = []
    tail = Tail(str(log))
    tail.mark()
    log.write_bytes(b"before\nafter\nlast\n")

    assert (tail.read(shown.extend), tail.read(shown.extend), shown) == (True, False, [b"before"])
    log.write_bytes(b"before\nafter\nlast\n")
    tail.close(shown.extend)
    assert shown == [b"before", b"after", b"last"]
