"""Commands that fail, hang, or are not there: each is run for real."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.busy import BUSY

from ddplaunch.backends.slurm.commands import CommandResult, Commands
from ddplaunch.errors import ClusterError

Write = Callable[[str, str], None]
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture(name="write")
def _write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes a program of the cluster, as a script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(program: str, script: str) -> None:
        (tmp_path / program).write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        (tmp_path / program).chmod(0o755)

    return write


@pytest.mark.parametrize(
    ("code", "err", "unreached", "unanswered"),
    [
        (0, "", False, False),
        (0, f"sbatch: {DOWN}", False, False),
        (1, DOWN, True, True),
        (1, "Unable to contact slurm controller (receive failure)", False, True),
        (1, "slurm_load_jobs error: Socket timed out on send/recv operation", False, True),
        (1, f"sbatch: error: Socket timed out on send/recv operation\n{DOWN}", False, True),
        (1, "Slurm temporarily unable to accept job, sleeping and retrying", False, True),
        (1, "Zero Bytes were transmitted or received", False, True),
        (1, "Invalid job id specified", False, False),
        (None, "no answer in 20 s", False, True),
        (None, DOWN, False, True),
    ],
)
def test_only_a_controller_that_was_not_reached_has_heard_nothing(
    code: int | None, err: str, unreached: bool, unanswered: bool
) -> None:
    """Whatever was sent may have been taken."""
    answer = CommandResult(code, "", err)

    assert (unreached, unanswered) == (answer.unreached, answer.unanswered)


def test_a_question_is_asked_until_it_is_answered(write: Write, tmp_path: Path) -> None:
    """Twice nobody answers, then somebody does."""
    write(
        "squeue", f"echo x >>asked; [ $(wc -l <asked) -gt 2 ] && echo yes || {{ echo '{DOWN}' >&2; exit 1; }}"
    )

    assert CommandResult(0, "yes\n", "") == Commands().ask("squeue")
    assert 3 == len((tmp_path / "asked").read_text().splitlines())


def test_an_error_is_an_answer(write: Write, tmp_path: Path) -> None:
    write("squeue", "echo x >>asked; echo 'squeue: error: Invalid job id specified' >&2; exit 1")
    answer = Commands().ask("squeue")

    assert (1, "Invalid job id specified") == (answer.code, answer.last_line)
    assert 1 == len((tmp_path / "asked").read_text().splitlines())


def test_silence_has_an_end(write: Write) -> None:
    """The message says which command, for how long, and what was said last."""
    write("squeue", f"echo '{DOWN}' >&2; exit 1")

    with pytest.raises(ClusterError) as caught:
        Commands("north", patience=0.2).ask("squeue")

    said = re.sub(r"for \d+ s", "for some s", caught.value.message)
    begin = "Slurm's controller of cluster north does not answer: `squeue` was tried for some s: "
    assert f"{begin}{DOWN}" == said


def test_a_command_that_hangs_is_killed_with_its_children(write: Write, tmp_path: Path) -> None:
    """Its limit is kept, also by a wrapper whose child goes on."""
    write("squeue", "exec sleep 60")
    started = time.monotonic()
    answer = Commands().run("squeue", limit=0.3)

    assert (None, "no answer in 0 s") == (answer.code, answer.err)
    assert time.monotonic() - started < BUSY * 10


def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no `squeue` on this machine"):
        Commands().ask("squeue")


def test_commands_without_a_cluster_lead_to_one(write: Write) -> None:
    """Where Slurm is installed and not set up, as on a desk; in the words of the real command."""
    write("squeue", "echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1")

    with pytest.raises(ClusterError, match="`squeue` finds no cluster") as caught:
        Commands().ask("squeue")
    assert "on a login node of the cluster, or set SLURM_CONF" in caught.value.hint


def test_the_users_habits_do_not_change_answers(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats of his own are left out, times are numbers; what sbatch gets is as it was."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CONF", "/etc/x")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    write("squeue", 'echo "$SQUEUE_FORMAT,$SLURM_CONF,$SLURM_TIME_FORMAT,$*"')

    assert ",/etc/x,%s,--clusters=north --me" == Commands("north").ask("squeue", "--me").out.strip()
    assert "%i,/etc/x,relative," == Commands().run("squeue").out.strip()


def test_words_and_bytes_come_through(write: Write) -> None:
    """Blanks, quotes, newlines and what is no UTF-8."""
    write("squeue", "printf '%s|' \"$@\"; printf '\\377'")

    assert "a b|'|$x|\n|é|�" == Commands().run("squeue", "a b", "'", "$x", "\n", "é").out
