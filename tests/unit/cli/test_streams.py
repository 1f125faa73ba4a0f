"""The standard streams, as shells, pipes and locales hand them over: each test is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.unit.cli.conftest import SCRIPT

from ddplaunch.cli import main


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`command`, in which `ddplaunch` is the command line of this checkout."""
    own = {"PYTHONPATH": os.pathsep.join(sys.path)}
    (folder / "ddplaunch").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{SCRIPT}" "$@"\n')
    (folder / "ddplaunch").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=kept | own | {"PATH": f"{folder}:{os.environ['PATH']}"} | env,
        capture_output=True,
        check=False,
        timeout=BUSY * 30,
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ddplaunch --help >&-", 0),
        ("ddplaunch explain slow >&-", 0),
        ("ddplaunch rnder 2>&-", 2),
        ("ddplaunch validate - <&-", 2),
    ],
)
def test_a_stream_that_the_caller_closed_is_no_fault(tmp_path: Path, command: str, code: int) -> None:
    """As cron and some services do: the exit code is what it would be otherwise."""
    result = shell(command, tmp_path)

    assert code == result.returncode
    assert b"Error" not in result.stderr


@pytest.mark.parametrize("words", ["--help", "explain slow", "schema"])
def test_a_full_disk_is_told_as_such(tmp_path: Path, words: str) -> None:
    """Not as a fault of this program, and once."""
    result = shell(f"ddplaunch {words} >/dev/full", tmp_path)

    said = (
        b"error: standard output cannot be written: No space left on device\n\n"
        b"hint: `df -h` shows which disk is full, and `quota` how much of it you may use\n"
    )
    assert (1, said) == (result.returncode, result.stderr)


def test_a_job_file_that_found_no_room_is_not_in_the_way_later(tmp_path: Path) -> None:
    """An empty one would be, since none is overwritten."""
    result = shell("(ulimit -f 0; ddplaunch init job.yaml); ddplaunch init job.yaml", tmp_path)

    assert 0 == result.returncode
    assert b"error: job.yaml cannot be written: File too large\n\nhint: " in result.stderr
    assert b"wrote job.yaml" in result.stderr


def test_what_is_printed_is_the_same_in_every_locale(tmp_path: Path) -> None:
    """A job file is UTF-8, and what is rendered from it is piped on."""
    (tmp_path / "job.yaml").write_text(
        "apiVersion: ddplaunch/v1\nname: digits\ncommand: [train.py, --title, Übung …]\n", "utf-8"
    )
    wanted = shell("ddplaunch render job.yaml --to slurm", tmp_path, PYTHONUTF8="1")
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    result = shell("ddplaunch render job.yaml --to slurm", tmp_path, **bare)

    assert (0, wanted.stdout, b"") == (result.returncode, result.stdout, result.stderr)


def test_a_name_of_odd_bytes_can_be_told(tmp_path: Path) -> None:
    """Nobody can print them as they are; that the file is not there can be said."""
    result = shell("ddplaunch validate --json $'caf\\xe9.yaml'", tmp_path)

    assert 2 == result.returncode
    assert b"caf\\udce9.yaml" in result.stdout
    assert b"Error" not in result.stderr


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("verb", main.VERBS)
def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, verb: str, columns: int) -> None:
    """Prose is folded; examples and tables stay as they are, to be copied from."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = main.verb_parser(verb).format_help()

    prose = [line for line in text.splitlines() if not line.startswith((" ", "usage:"))]
    assert [] == [line for line in prose if len(line) > columns]
    examples = [
        line for line in str(main.verb_parser(verb).description).splitlines() if line.startswith("  ")
    ]
    assert [] == [line for line in examples if line not in text.splitlines()]
