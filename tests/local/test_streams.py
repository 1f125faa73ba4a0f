"""`ddplaunch run -- …`: stdin, stdout and stderr are the command's own, byte for byte; ours is on stderr."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import SCRIPT, Desk
from tests.local.terminal import read_until, spawned, typed

RUN = [sys.executable, "-c", SCRIPT, "run"]
OURS = re.compile(rb"(\d\d:\d\d:\d\d |\[\d+/ddplaunch\] |ddplaunch: ).*\r?\n")
TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=2", "--no-python"]
BARS = """
import os, sys, time
print("ttys", sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(2).columns, flush=True)
rank = os.environ.get("RANK")
for step in range(30):
    if rank and step % 10 == 0:  # both have a bar, however slow the machine is
        open(f"{step}-{rank}", "x").close()
        while not os.path.exists(f"{step}-{1 - int(rank)}"):
            time.sleep(0.01)
    sys.stderr.write(f"\\rstep {step} of {rank}")
    sys.stderr.flush()
    time.sleep(0.05)
print("\\ntrained", flush=True)
"""


def run(desk: Desk, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`ddplaunch run`, with pipes for its three streams."""
    return subprocess.run(
        [*RUN, *words],
        input=given,
        capture_output=True,
        env=desk.env,
        cwd=desk.folder,
        timeout=BUSY * 90,
        check=False,
    )


def test_every_byte_comes_on_its_own_stream(desk: Desk) -> None:
    given = bytes(range(256)) * 20_000
    done = run(desk, "--", "sh", "-c", "printf 'no end' >&2; cat; exit 7", given=given)

    assert 7 == done.returncode
    assert given == done.stdout
    assert b"no end" in OURS.sub(b"", done.stderr).splitlines()


def test_a_reader_that_goes_ends_the_command_by_sigpipe(desk: Desk) -> None:
    words = [*RUN, "--", "sh", "-c", "yes; echo ended by $(kill -l $?) >&2"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=desk.env, cwd=desk.folder
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"y\n" == process.stdout.read(2)
        process.stdout.close()
        said = process.stderr.read()

    assert b"ended by PIPE" in said


def test_ranks_print_as_under_torchrun_alone_and_are_told_apart_in_the_logs(desk: Desk) -> None:
    """Into pipes no line has a prefix; --prefix asks for it; what a rank has redirected stays where it is."""
    rank = 'echo "by $RANK"; echo "err $RANK" >&2; echo hidden > "file-$RANK"'
    done = run(desk, "--", *TORCHRUN, "sh", "-c", rank)
    named = run(desk, "--prefix", "--", *TORCHRUN, sys.executable, "-c", "print('hi')")
    logs = desk.call("logs", "local://run/2", "--rank", "1").stdout

    assert [b"by 0", b"by 1"] == sorted(done.stdout.splitlines())
    assert {b"err 0", b"err 1"} <= set(done.stderr.splitlines())
    assert "hidden\n" == (desk.folder / "file-1").read_text()
    assert [b"[0/0] hi", b"[0/1] hi"] == sorted(named.stdout.splitlines())
    assert "[0/1] hi\n" == logs


def test_a_single_program_has_the_terminal_for_itself(desk: Desk) -> None:
    """It sees a terminal of the same size, and its bar comes byte for byte; what is typed is its stdin."""
    program = f"{BARS}\nprint(input('more? '))"
    with spawned(desk, *RUN, "--", sys.executable, "-c", program) as process:
        seen = read_until(process.stdout, b"more? ")
        typed(process, b"enough\n")
        seen += read_until(process.stdout, b"the job has")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BUSY * 30)
    bar = b"".join(b"\rstep %d of None" % step for step in range(30))

    assert 0 == process.returncode
    assert b"ttys True True 80\r\n" + bar + b"\r\ntrained\r\nmore? enough\r\nenough\r\n" in seen


def test_bars_of_several_ranks_stand_side_by_side_in_a_terminal(desk: Desk) -> None:
    with spawned(desk, *RUN, "--", *TORCHRUN, sys.executable, "-c", BARS) as process:
        seen = read_until(process.stdout, b"the job has")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BUSY * 30)
    steps = [set(re.findall(rb"\[0/%d\] step (\d+) of %d" % (rank, rank), seen)) for rank in (0, 1)]

    assert b"[0/1] ttys True True 80\r\n" in seen
    assert all(len(each) >= 3 for each in steps), seen
    assert re.search(rb"\[0/0\] step \d+ of 0[\r\n]+\[0/1\] step \d+ of 1", seen), seen
    assert all(b"[0/%d] trained\r\n" % rank in seen for rank in (0, 1))


@pytest.mark.whole
def test_raw_hands_over_the_terminal_itself(desk: Desk) -> None:
    program = (
        "import os\n"
        "print(os.ttyname(0), os.ttyname(1), os.ttyname(2), os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
        "try:\n    input('> ')\n"
        "except KeyboardInterrupt:\n    print('interrupted', input('> '), flush=True)\n"
    )
    with spawned(desk, *RUN, "--raw", "--", sys.executable, "-c", program) as process:
        seen = read_until(process.stdout, b"> ")
        typed(process, b"\x03")
        seen += read_until(process.stdout, b"> ")
        typed(process, b"here\n")
        seen += read_until(process.stdout, b"the job has")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BUSY * 30)

    assert 0 == process.returncode, seen
    assert re.search(rb"(/dev/pts/\d+) \1 \1 True\r\n", seen)
    assert b"interrupted here" in seen


def test_torchruns_options_and_pythons_buffers_are_the_users(desk: Desk) -> None:
    names = {line.partition(b"=")[0] for line in run(desk, "--", "env").stdout.splitlines()}

    assert not names & {b"PYTHONUNBUFFERED", b"PET_REDIRECTS", b"PET_LOG_DIR"} - set(
        map(os.fsencode, desk.env)
    )


def test_the_command_gets_the_descriptors_that_its_shell_has_opened(desk: Desk) -> None:
    ours = shlex.join(
        [sys.executable, "-c", SCRIPT, "run", "--", "sh", "-c", 'cat "$1"; echo more >&9', "sh"]
    )
    done = subprocess.run(
        ["bash", "-c", f"exec 9>nine; {ours} <(echo from a pipe)"],
        cwd=desk.folder,
        env=desk.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUSY * 60,
    )

    assert (0, "from a pipe\n") == (done.returncode, done.stdout), done.stderr
    assert "more\n" == (desk.folder / "nine").read_text()
