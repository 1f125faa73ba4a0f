"""What several writers print, on one stream: in a terminal, in a file, with and without their names."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddplaunch.agent.local.display import (
    BACKLOG,
    Display,
    LineDisplay,
    Outlet,
    ScreenDisplay,
    Writer,
    display,
)
from ddplaunch.agent.text.lines import PARTIAL_EVERY, PrefixedLines

LAUNCH = Writer(b"[0/launch] ")
ONE, TWO = (Writer(b"[0/%d] " % rank, several=True) for rank in (1, 2))


class Terminal:
    """A terminal of 40 columns, and what it shows."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.outlet = Outlet(slave)
        self.bytes = b""

    def screen(self) -> list[str]:
        """The lines on it, by the few movements that we make."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.bytes += os.read(self._master, 1 << 16)
        lines, row, column = [""], 0, 0
        for piece in re.findall(r"\x1b\[\d*[A-Z]|.", self.bytes.decode(), re.DOTALL):
            if piece == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif piece == "\r":
                column = 0
            elif piece.endswith("A") and len(piece) > 1:
                row -= int(piece[2:-1])
            elif piece == "\x1b[J":
                lines[row:] = [lines[row][:column]]
            else:
                lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + 1 :]
                column += 1
        return lines


@pytest.fixture(name="terminal")
def _terminal() -> Terminal:
    return Terminal()


def test_bars_stand_below_the_lines_and_each_on_its_own_row(terminal: Terminal) -> None:
    shown = ScreenDisplay(terminal.outlet)
    shown.feed(ONE, b"\r 10% of one", 1.0)
    shown.feed(TWO, b"\r 10% of two, which is longer", 2.0)
    assert ["[0/1]  10% of one", "[0/2]  10% of two, which is longer"] == terminal.screen()
    shown.feed(ONE, b"\r 20% of one\nloss 3\n\r 0% again", 3.0)
    shown.feed(TWO, b"\r 20%", 4.0)
    shown.say(b"[0/ddplaunch] a notice\n")

    wanted = ["[0/1]  20% of one", "[0/1] loss 3", "[0/ddplaunch] a notice", "[0/1]  0% again", "[0/2]  20%"]
    assert wanted == terminal.screen()
    shown.close()
    assert ["[0/1]  0% again", "[0/2]  20%", ""] == terminal.screen()[3:]


def test_bars_stand_in_the_order_of_ranks_whoever_wrote_first(terminal: Terminal) -> None:
    shown = ScreenDisplay(terminal.outlet)
    for writer in (Writer(b"[0/10] ", several=True), TWO, ONE):
        shown.feed(writer, b"\r 10%", 1.0)
    shown.tick(2.0)

    assert ["[0/1]  10%", "[0/2]  10%", "[0/10]  10%"] == terminal.screen()


def test_bars_are_drawn_ten_times_a_second(terminal: Terminal) -> None:
    shown = ScreenDisplay(terminal.outlet)
    for state in range(1000):
        shown.feed(ONE, b"\r%d" % state, 1.0 + state / 1000)
    shown.tick(3.0)

    assert ["[0/1] 999"] == terminal.screen()
    assert 9 <= terminal.bytes.count(b"[0/1]") <= 12


def test_the_terminal_is_free_again_after_the_ranks(terminal: Terminal) -> None:
    """A script that goes on after torchrun has it as before, also where it has begun a line meanwhile."""
    shown = ScreenDisplay(terminal.outlet)
    shown.feed(ONE, b"\r 10%", 1.0)
    shown.feed(LAUNCH, b"next: ", 2.0)
    assert ["[0/1]  10%", "next:"] == [line.rstrip() for line in terminal.screen()]
    shown.end(ONE)
    shown.feed(LAUNCH, b"\x1b[31mred", 3.0)

    assert "[0/1]  10%" == terminal.screen()[0]
    assert terminal.bytes.endswith(b"next: \x1b[31mred")


def test_one_writer_has_the_terminal_for_itself(terminal: Terminal) -> None:
    shown = display(terminal.outlet, None, "xterm")
    shown.feed(LAUNCH, b"\x1b[2;3Hhere \x1b[31mred\x1b[0m\rover", 1.0)
    terminal.screen()

    assert b"\x1b[2;3Hhere \x1b[31mred\x1b[0m\rover" == terminal.bytes


def test_a_file_gets_the_newest_state_of_a_bar_every_few_seconds() -> None:
    lines = PrefixedLines(b"[0/1] ")
    now, seen = 100.0, b""
    for step in range(230):
        now += PARTIAL_EVERY / 100
        seen += lines.feed(b"\rstep %d" % step, now) + lines.tick(now)
    seen += lines.tick(now + PARTIAL_EVERY) + lines.tick(now + 2 * PARTIAL_EVERY) + lines.end()

    states = re.findall(rb"\[0/1\] step (\d+)\n", seen)
    assert (3, b"229") == (len(states), states[-1])
    assert b"[0/1] done\n" == PrefixedLines(b"[0/1] ").feed(b"done\n", now)


def test_in_a_dumb_terminal_or_a_file_nothing_is_drawn(terminal: Terminal) -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer)

    assert [Display, Display, LineDisplay, LineDisplay] == [
        type(display(terminal.outlet, None, "dumb")),
        type(display(outlet, None, "xterm")),
        type(display(outlet, True, "xterm")),
        type(display(terminal.outlet, True, "xterm")),
    ]
    os.close(reader)


def test_a_reader_that_is_gone_is_noticed_and_a_slow_one_is_waited_for() -> None:
    reader, writer = os.pipe()
    outlet = Outlet(writer)
    outlet.write(b"x" * 3_000_000)
    assert (True, True, False) == (outlet.full, not outlet.empty, outlet.broken)
    received = 0
    while received < 3_000_000:
        received += len(os.read(reader, 1 << 20))
        outlet.flush()
    assert outlet.empty
    os.close(reader)
    outlet.write(b"y")

    assert outlet.broken


# --- one of the streams


def _run(command: str, stdout: str, state: Path) -> subprocess.CompletedProcess[str]:
    words = [str(Path(sys.executable).with_name("ddplaunch")), "run", "--", "sh", "-c", command]
    with open(stdout, "wb") as file:
        return subprocess.run(
            words,
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )


def test_output_that_a_full_disk_does_not_take_is_no_success(tmp_path: Path) -> None:
    ended = _run("echo trained", "/dev/full", tmp_path)

    assert ended.returncode == 1, ended.stderr
    lost = "cannot write stdout: No space left on device; 8 bytes of output are lost"
    assert lost in ended.stderr

    words = [str(Path(sys.executable).with_name("ddplaunch")), "status", "local://run"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    status = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert status.returncode == 100
    assert "failed after" in status.stdout
    assert lost in status.stdout


def test_a_full_disk_is_waited_for_until_its_writers_would_wait_for_good(tmp_path: Path) -> None:
    """As long as the backlog has room, the disk may have room again; nobody waits for `ulimit -f`."""
    with open("/dev/full", "wb") as file:
        outlet = Outlet(file.fileno())
        outlet.write(b"x" * 1000)
        assert (outlet.refuses, outlet.broken, outlet.lost) == (True, False, 0)

    program = (
        "import resource, sys; sys.path[:] = eval(sys.argv[1]);"
        "from ddplaunch.agent.local.display import BACKLOG, Outlet;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); outlet = Outlet(1);"
        "outlet.write(b'x' * (BACKLOG + 8192)); print(outlet.broken, outlet.lost, file=sys.stderr)"
    )
    with open(tmp_path / "out", "wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", program, repr(sys.path)],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=50,
        )

    assert ended.stderr.split() == ["True", str(BACKLOG + 4096)]
