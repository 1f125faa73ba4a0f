"""At a real terminal: the picture of a job, and Ctrl-C as the keyboard sends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import SCRIPT, Desk
from tests.local.terminal import read_until, spawned, typed


def at_terminal(desk: Desk, *words: str) -> subprocess.Popen[bytes]:
    """`ddplaunch` on a terminal of its own; what is written to it is typed there."""
    return spawned(desk, sys.executable, "-c", SCRIPT, *words)


ASKS = (
    "import asyncio, readline, subprocess, sys, threading, time\n"
    "one = input('one? ')\n"
    "subprocess.run(['bash', '-c', 'read -s -p \"two? \" two; echo has $two'])\n"
    "async def prompt():\n"
    "    typed = asyncio.Event()\n"
    "    asyncio.get_running_loop().add_reader(0, typed.set)\n"
    "    print('three? ', flush=True)\n"
    "    await typed.wait()\n"
    "    print('has', input(), flush=True)\n"
    "thread = threading.Thread(target=asyncio.run, args=[prompt()])\n"
    "thread.start()\n"
    "thread.join()\n"
    "time.sleep(60 if one == 'sleep' else 0)"
)


def test_a_command_that_waits_for_the_user_is_no_hang(desk: Desk) -> None:
    """Nor is its child, nor the prompt of an event loop in a thread, as IPython's; after that, it is watched
    as before.
    """
    words = ("run", "--notice-after", "3s", "--", sys.executable, "-c", ASKS)
    with at_terminal(desk, *words) as process:
        seen = b""
        for question, answer in ((b"one? ", b"sleep\r"), (b"two? ", b"two\r"), (b"three? ", b"three\r")):
            seen += read_until(process.stdout, question)
            time.sleep(8)
            typed(process, answer)
        seen += read_until(process.stdout, b"has three")
        assert b"nothing moves" not in seen
        read_until(process.stdout, b"nothing moves")
        typed(process, b"\x03")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BUSY * 60)


@pytest.mark.whole
def test_the_picture_shows_every_node_and_ctrl_c_leaves_the_job_running(desk: Desk) -> None:
    path = desk.job("--steps", "150", nodes=2, nproc=1)
    with at_terminal(desk, "submit", path, "--wait") as process:
        seen = read_until(process.stdout, b"step 1")
        assert process.stdin is not None
        process.stdin.write(b"\x03")
        process.stdin.flush()
        seen += read_until(process.stdout, b"to stop it")
        process.stdin.close()
        process.wait(BUSY * 30)

    assert 101 == process.returncode
    assert b"nodes 0-1" in seen
    assert b"rendezvous for" in seen
    assert b"\x1b[" in seen
    assert b"detached; local://tiny/1 goes on" in seen
    assert b"Traceback" not in seen
    assert 0 == desk.call("status", "local://tiny", "--watch").returncode


def test_watch_fills_the_terminal_and_gives_it_back_on_ctrl_c(desk: Desk) -> None:
    path = desk.job("--hang-at", "1", more="watchdog: {notice_after: 5s, kill_after: 600s}\n")
    handle = desk.call("submit", path).stdout.strip()
    with at_terminal(desk, "watch", handle) as process:
        seen = read_until(process.stdout, b"rank 1 at fault")
        assert process.stdin is not None
        process.stdin.write(b"\x03")
        process.stdin.flush()
        seen += read_until(process.stdout, b"\x1b[?1049l")
        process.stdin.close()
        process.wait(BUSY * 30)

    assert 130 == process.returncode
    assert seen.startswith(b"\x1b[?1049h")
    assert b"rank 0 can only wait" in seen
    assert b"Traceback" not in seen
    assert 101 == desk.call("status", handle).returncode

    with desk.start("watch", handle) as watcher:
        assert watcher.stdout is not None
        lines = [next(watcher.stdout), next(watcher.stdout)]
        desk.call("cancel", handle)
        rest, _ = watcher.communicate(timeout=BUSY * 60)
    assert 103 == watcher.returncode
    assert lines[0].startswith("ddplaunch: running on 1 node for ")
    assert lines[1].startswith("ddplaunch: notice: rank-in-user-code: rank 1 has been in load_slowly")
    assert f"{handle}  cancelled after " in rest
    assert "\x1b" not in "".join(lines) + rest


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_draws_again(desk: Desk) -> None:
    path = desk.job("--hang-at", "1", nproc=1)
    handle = desk.call("submit", path).stdout.strip()
    watch = f"{sys.executable} -c '{SCRIPT}' watch {handle}\n"
    with spawned(desk, "bash", "--norc", "--noprofile", "-i") as process:
        typed(process, watch.encode())
        for _ in range(2):
            read_until(process.stdout, handle.encode() + b"  ")
            typed(process, b"\x1a")
            left = read_until(process.stdout, b"Stopped")
            typed(process, b"fg\n")
            again = read_until(process.stdout, b"\x1b[?1049h")
            assert left.index(b"\x1b[?25h") < left.index(b"Stopped")
            assert left.index(b"\x1b[?1049l") < left.index(b"Stopped")
            assert b"\x1b[?1049h" not in left + again.rpartition(b"\x1b[?1049h")[0]
        read_until(process.stdout, handle.encode() + b"  ")
        typed(process, b"\x03")
        read_until(process.stdout, b"\x1b[?1049l")
        typed(process, b"echo code $?\n")
        read_until(process.stdout, b"code 130")
        typed(process, b"exit\n")
        process.wait(BUSY * 30)
    desk.call("cancel", handle)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.whole)])
def test_a_signal_that_ends_the_watching_gives_the_terminal_back(desk: Desk, number: signal.Signals) -> None:
    path = desk.job("--hang-at", "1", nproc=1)
    handle = desk.call("submit", path).stdout.strip()
    with at_terminal(desk, "watch", handle) as process:
        read_until(process.stdout, handle.encode() + b"  ")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), number)
        left = read_until(process.stdout, b"\x1b[?1049l")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BUSY * 30)
    desk.call("cancel", handle)

    assert 256 - number == process.returncode  # as SPAWN passes on the end by a signal
    assert b"\x1b[?25h" in left
    assert b"Traceback" not in left


@pytest.mark.whole
def test_a_browser_sees_the_job_until_its_end(desk: Desk) -> None:
    handle = desk.call("submit", desk.job("--steps", "3")).stdout.strip()
    with desk.start("watch", handle, "--web") as watcher:
        assert watcher.stderr is not None
        url = next(word for word in watcher.stderr.readline().split() if word.startswith("http://127.0.0.1:"))
        page = ""
        while "This page has ended with the job." not in page:
            with contextlib.suppress(urllib.error.HTTPError):  # at first nothing is known of the job
                page = urllib.request.urlopen(f"{url}board", timeout=BUSY * 10).read().decode()
            time.sleep(0.1)
        out, _ = watcher.communicate(timeout=BUSY * 30)

    assert handle in page
    assert "succeeded after " in page
    assert 0 == watcher.returncode
    assert f"{handle}  succeeded after " in out


@pytest.mark.whole
def test_ctrl_c_ends_the_following_of_logs_and_not_the_job(desk: Desk) -> None:
    handle = desk.call("submit", desk.job("--steps", "10000", nproc=1)).stdout.strip()
    with desk.start("logs", "-f", handle) as follower:
        assert follower.stdout is not None
        next(line for line in follower.stdout if "step 1" in line)
        os.killpg(follower.pid, signal.SIGINT)
        _, err = follower.communicate(timeout=BUSY * 30)
    stated = desk.call("status", handle)

    assert (130, "\n", 101) == (follower.returncode, err, stated.returncode)
    assert 0 == desk.call("cancel", handle).returncode
