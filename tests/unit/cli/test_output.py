"""What a terminal shows of rendered files, and what a pipe gets."""

from __future__ import annotations

import base64
import os
import pty
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.unit.cli.conftest import JOB, SCRIPT, Call

from ddplaunch.cli.output import abridged

NOISE = random.Random(7).randbytes(3000)


def on_a_terminal(folder: Path, *words: str) -> tuple[str, str]:
    """Stdout and stderr of a command whose stdout is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    _, errors = process.communicate(timeout=BUSY * 30)
    return shown.decode().replace("\r\n", "\n"), errors


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the last writer has closed it
        return b""


@pytest.mark.parametrize("verb", ["render", "submit"])
@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_a_terminal_gets_no_archive(
    call: Call, job_file: Path, tmp_path: Path, target: str, verb: str
) -> None:
    """Every other line is there, and one line on stderr says how to get the whole."""
    job_file.write_text(f"{JOB}image: trainer\n")
    words = [verb, "job.yaml", "--to", target, *(["--dry-run"] if verb == "submit" else [])]

    shown, errors = on_a_terminal(tmp_path, *words)
    piped = call(*words).out

    assert (True, True) == (len(piped) > 200_000, len(shown) < 60_000)
    lines = [line for line in shown.splitlines() if "more characters of base64)" not in line]
    assert set(lines) <= set(piped.splitlines())
    notes = [line for line in errors.splitlines() if "are not shown on a terminal" in line]
    assert 1 == len(notes)
    assert notes[0].endswith("use a pipe (`… | less`) or `ddplaunch render … -o DIR`")


def test_what_is_short_is_whole(job_file: Path, tmp_path: Path, call: Call) -> None:
    """A local job has no archive in its text, and no note."""
    assert (call("render", "job.yaml").out, "") == on_a_terminal(tmp_path, "render", "job.yaml")


@pytest.mark.parametrize(
    "archive",
    [
        f"agent.pyz: {base64.b64encode(NOISE).decode()}\n",
        "".join(f"#agent.pyz: {line}\n" for line in base64.encodebytes(NOISE).decode().splitlines()),
    ],
    ids=["in one line", "in comments"],
)
def test_the_size_of_what_is_missing_is_told(archive: str) -> None:
    """And where it begins; what stands around it stays."""
    short, left_out = abridged(f"before:\n{archive}after\n")

    head = short.partition("…")[0]
    assert f"before:\n{archive}".startswith(head)
    assert f"{head}… ({left_out:,} more characters of base64)\nafter\n" == short
    assert len(archive) - 80 < left_out < len(archive)
