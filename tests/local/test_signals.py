"""Signals to `ddplaunch run` do to the command what they do without it, and its end is ours."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import SCRIPT, Desk, eventually

COUNTS = """
import signal, sys, time
counts = dict.fromkeys((signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH, signal.SIGRTMIN), 0)
def count(number, frame):
    counts[number] += 1
    print("so far", sum(counts.values()), flush=True)
for number in counts:
    signal.signal(number, count)
def save(*_):
    print("counted", *counts.values(), flush=True)
    sys.exit(9)
signal.signal(signal.SIGTERM, save)
print("stands", flush=True)
while True:
    time.sleep(1)
"""
SAVES = """
import os, signal, time
def save(number, _):
    print("got", number, flush=True)
    time.sleep(4)  # another signal would interrupt it, and so would an end after two seconds
    open("checkpoint", "w").close()
    os._exit(3)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(100)
"""
TICKS = """
import time
for second in range(1000):
    print("tick", second, flush=True)
    time.sleep(0.2)
"""


def until(process: subprocess.Popen[str], text: str, *, ours: bool = False) -> str:
    """The lines up to the one that has this, of the command, or of ddplaunch itself."""
    stream = process.stderr if ours else process.stdout
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return "".join(lines)
    pytest.fail(f"{text!r} was never printed\n{''.join(lines)}")


def test_each_signal_comes_once_and_the_command_ends_as_it_wants(desk: Desk) -> None:
    """None of them ends the wrapper; one that comes before the command is there waits for its handler."""
    with desk.start("run", "--", sys.executable, "-c", COUNTS) as process:
        until(process, "checked in", ours=True)
        process.send_signal(signal.SIGUSR1)
        until(process, "so far 1")
        for number in (signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH, signal.SIGRTMIN):
            process.send_signal(number)
        until(process, "so far 5")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=BUSY * 60)

    assert "counted 1 1 1 1 1" in out
    assert f"told to stop by SIGTERM from process {os.getpid()} (" in out + err
    assert 9 == process.returncode


def test_a_signal_to_our_process_group_comes_once_with_raw(desk: Desk) -> None:
    """The command is in that group once it is there."""
    with desk.start("run", "--raw", "--", sys.executable, "-c", COUNTS) as process:
        until(process, "checked in", ours=True)
        os.killpg(process.pid, signal.SIGUSR1)
        until(process, "so far 1")
        os.killpg(process.pid, signal.SIGUSR2)
        until(process, "so far 2")
        process.send_signal(signal.SIGHUP)
        until(process, "so far 3")
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=BUSY * 60)

    assert "counted 1 1 1 0 0" in out, err
    assert 9 == process.returncode


def test_we_end_by_the_signal_that_ends_the_command(desk: Desk) -> None:
    assert -signal.SIGTERM == desk.call("run", "--", "bash", "-c", "kill -TERM $$").returncode

    with desk.start("run", "--", sys.executable, "-c", TICKS) as process:
        until(process, "tick 1")
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=BUSY * 60)
    assert -signal.SIGUSR1 == process.returncode


def test_a_signal_that_our_caller_ignores_ends_nothing(desk: Desk) -> None:
    program = "import signal; print('ignored', signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True)"
    words = shlex.join([sys.executable, "-c", SCRIPT, "run", "--", sys.executable, "-c", program + TICKS])
    with subprocess.Popen(
        ["sh", "-c", f"trap '' HUP; exec {words}"],
        cwd=desk.folder,
        env=desk.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        until(process, "ignored True")
        process.send_signal(signal.SIGHUP)
        until(process, "tick 5")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BUSY * 60)

    assert -signal.SIGINT == process.returncode


def test_what_our_caller_has_blocked_the_command_blocks(desk: Desk) -> None:
    words = [sys.executable, "-c", SCRIPT, "run", "--", "grep", "SigBlk", "/proc/self/status"]
    done = subprocess.run(
        words,
        cwd=desk.folder,
        env=desk.env,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM]),
        check=True,
    )

    assert 1 << signal.SIGUSR1 - 1 | 1 << signal.SIGTERM - 1 == int(done.stdout.split()[1], 16)


def test_a_rank_whose_shell_has_ended_may_save(desk: Desk) -> None:
    """The trap of a batch script has told it, and it is told once."""
    (desk.folder / "saves.py").write_text(SAVES)
    script = f'{sys.executable} saves.py & trap "kill $!; exit 5" TERM; wait'
    with desk.start("run", "--", "bash", "-c", script) as process:
        until(process, "up")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=BUSY * 60)

    assert (5, f"got {signal.SIGTERM:d}") == (process.returncode, out.strip()), err
    assert (desk.folder / "checkpoint").exists(), err
    assert "waiting up to 30 s for 1 process with a handler for SIGTERM" in " ".join(err.split())


@pytest.mark.whole
def test_cancel_ends_a_job_whose_caller_ignores_sigterm(desk: Desk) -> None:
    words = shlex.join([sys.executable, "-c", SCRIPT, "run", "--", sys.executable, "-c", TICKS])
    with subprocess.Popen(
        ["sh", "-c", f"trap '' TERM; exec {words}"],
        cwd=desk.folder,
        env=desk.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(process, "tick 1")
        process.send_signal(signal.SIGTERM)
        until(process, "tick 5")
        desk.call("cancel", "local://run")
        out, err = process.communicate(timeout=BUSY * 60)

    assert "told to stop by `ddplaunch cancel`" in err, out + err
    assert 103 == process.returncode


class Shell:
    """An interactive bash in a terminal."""

    def __init__(self, desk: Desk) -> None:
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.chdir(desk.folder)
            os.execvpe(
                "bash", ["bash", "--norc", "--noprofile", "-i"], desk.env | {"PS1": "$ ", "TERM": "dumb"}
            )
        self.output = ""
        self._seen = 0

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def said(self, pattern: str, seconds: float = 60) -> str:
        """Wait for a match in what is new, and return it."""
        deadline = time.monotonic() + BUSY * seconds
        while (found := re.search(pattern, self.output[self._seen :])) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.output}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.output += os.read(self._terminal, 1 << 16).decode(errors="replace")
        self._seen += found.end()
        return found.group()

    def close(self) -> None:
        os.close(self._terminal)


@pytest.fixture(name="shell")
def _shell(desk: Desk) -> Iterator[Shell]:
    shell = Shell(desk)
    yield shell
    shell.close()


def is_stopped(pid: int) -> bool:
    """Whether it is stopped, or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True


def test_ctrl_z_stops_all_of_it_and_is_no_hang(desk: Desk, shell: Shell) -> None:
    """The pause, longer than `kill_after`, is no hang. Ctrl-C is called so, and ends the shell's loop."""
    (desk.folder / "ticks.py").write_text(TICKS)
    run = shlex.join([sys.executable, "-c", SCRIPT, "run", "--notice-after", "3s", "--kill-after", "5s"])
    shell.type(f"for i in 1 2; do {run} -- {sys.executable} ticks.py; done; echo ends with $?\n")
    shell.said("tick 5")
    shell.type("\x1a")
    shell.said(r"Stopped.*")
    ours = [pid for pid in desk.processes() if b"bash" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
    eventually(lambda: all(map(is_stopped, ours)), "all of it stops", 10)
    assert len(ours) >= 6
    time.sleep(6)  # the pause itself

    shell.type("fg\n")
    last = int(shell.said(r"tick \d+").split()[1])
    shell.said(f"tick {last + 20}")
    shell.type("\x03")
    shell.said(r"told to stop by Ctrl-C")
    shell.said(r"KeyboardInterrupt")
    shell.type("echo ended with $?\n")
    shell.said(r"ended with 130")

    assert "hang" not in shell.output
    assert "stopped by" not in shell.output


def test_what_the_command_leaves_running_is_named_and_ended_or_kept(desk: Desk) -> None:
    """What ends by itself in a moment is left to do so, and not mentioned."""
    left = desk.call("run", "--", "bash", "-c", "sleep 1234 & exec > >(sleep 0.3; cat); echo late")
    said = left.stdout + left.stderr
    assert re.search(
        r"ended 1 process that the command left running: \d+ sleep 1234; .*--keep-background", said
    )
    assert "late" in left.stdout
    eventually(lambda: not desk.processes(), "it is ended", 10)

    kept = desk.call("run", "--keep-background", "--", "bash", "-c", "sleep 1234 >/dev/null 2>&1 & exit 3")
    (pid,) = desk.processes()
    os.kill(pid, signal.SIGKILL)
    assert "left running" not in kept.stdout + kept.stderr
    assert 3 == kept.returncode
